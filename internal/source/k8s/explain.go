package k8s

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// explain returns a message for the operator about an error. Errors of the
// connection have the same text for every resource, so that they are reported once.
func explain(server, resource string, err error) string {
	var status apierrors.APIStatus
	var certificate *tls.CertificateVerificationError
	var other otherAnswer
	switch {
	case errors.As(err, &other):
		return fmt.Sprintf("the server at %s answers a list of %s with a %s: it is not a Kubernetes API server, or a proxy on the way changes its answers",
			server, resource, string(other))
	case errors.As(err, &certificate):
		return fmt.Sprintf("the certificate of the API server at %s is not trusted (certificate-authority of the kubeconfig, or ca.crt of the service account): %v",
			server, certificate.Err)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("the API server at %s rejects the agent's credentials (401): the token has expired or is unknown, or the client certificate is not signed by the cluster",
			server)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("forbidden: list %s: grant %s the role in deploy/: until then %s", resource, accountOf(err), without[resource])
	case errors.As(err, &status) && status.Status().Code != 0:
		s := status.Status()
		return fmt.Sprintf("the API server at %s cannot list %s: it answers %d %s", server, resource, s.Code, s.Message)
	}
	return fmt.Sprintf("cannot reach the API server at %s: %s", server, redacted(cause(err)))
}

// without is the effect on the node while a resource cannot be listed.
var without = map[string]string{
	"services":       "Services keep their last known state; without one, the kernel stays unchanged",
	"endpointslices": "endpoints keep their last known state; without one, the kernel stays unchanged",
	"nodes":          "zone, addresses and pod CIDRs of this node keep their last known state; without one, Services are handled without them",
	"servicecidrs":   "the Service ranges keep their last known state; without one, packets to their unused addresses are not dropped",
}

// accountOf returns the account that was denied access, as the server names it. The
// rest of the server's message differs from one request to the next.
func accountOf(err error) string {
	if m := regexp.MustCompile(`User "([^"]+)"`).FindStringSubmatch(err.Error()); m != nil {
		return "the account " + m[1]
	}
	return "the account"
}

// cause returns why a connection could not be made, without the URL, the addresses
// and the ports that client-go and net wrap around it: they change with each
// attempt.
func cause(err error) string {
	var name *net.DNSError
	var number syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Sprintf("the name %s cannot be resolved: no such host", name.Name)
	case errors.As(err, &name):
		return fmt.Sprintf("the name %s cannot be resolved: %s", name.Name, name.Err)
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errNoAnswer.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	text := err.Error()
	if i := strings.Index(text, "\": "); i >= 0 && strings.Contains(text[:i], "://") {
		text = text[i+3:] // client-go wraps the URL around the cause: Get "https://...": ...
	}
	return text
}
