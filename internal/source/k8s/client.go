package k8s

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
)

const protobuf = runtime.ContentTypeProtobuf

// clients holds the REST clients of the three API groups, over one connection. They
// know the types of these groups only: client-go's clientset would load the types
// of all groups into memory.
type clients struct {
	core, discovery, networking rest.Interface
	events                      rest.Interface // core, with a rate limit of its own
	server                      string         // the server's URL, for messages to users
}

// restConfig returns the client configuration from the kubeconfig, or from the
// pod's service account.
func restConfig(c *Config) (*rest.Config, error) {
	var rc *rest.Config
	var err error
	if c.Kubeconfig == "" && c.Master == "" {
		rc, err = rest.InClusterConfig()
	} else {
		rc, err = clientcmd.BuildConfigFromFlags(c.Master, c.Kubeconfig)
	}
	if err != nil {
		from := "pod's service account"
		if c.Kubeconfig != "" {
			from = "kubeconfig " + c.Kubeconfig
		}
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	rc.UserAgent = c.UserAgent
	rc.ContentType = cmp.Or(c.ContentType, protobuf)
	rc.AcceptContentTypes = rc.ContentType
	if rc.ContentType != runtime.ContentTypeJSON {
		rc.AcceptContentTypes += "," + runtime.ContentTypeJSON
	}
	rc.WarningHandler = rest.NoWarnings{}
	if file := rc.BearerTokenFile; file != "" {
		// By default client-go reads the token file once a minute, even if the token
		// is refused. This transport also reads the file again when the token is
		// refused.
		rc.BearerToken, rc.BearerTokenFile = "", ""
		rc.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(file)))
	}
	return rc, nil
}

func newClients(c *Config) (*clients, error) {
	base, err := restConfig(c)
	if err != nil {
		return nil, err
	}
	qps, burst := cmp.Or(c.QPS, 5), cmp.Or(c.Burst, 10)
	connection, err := rest.HTTPClientFor(base)
	if err != nil {
		return nil, fmt.Errorf("set up connection to %s: %w", base.Host, err)
	}
	codecs := serializer.NewCodecFactory(newScheme()).WithoutConversion()
	watches := flowcontrol.NewFakeAlwaysRateLimiter()
	if qps > 0 { // negative turns it off, as in kube-proxy
		watches = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	out := &clients{server: redacted(base.Host)}
	for _, one := range []struct {
		to    *rest.Interface
		gv    schema.GroupVersion
		limit flowcontrol.RateLimiter
	}{
		{&out.core, corev1.SchemeGroupVersion, watches},
		{&out.discovery, discoveryv1.SchemeGroupVersion, watches},
		{&out.networking, networkingv1.SchemeGroupVersion, watches},
		{&out.events, corev1.SchemeGroupVersion, flowcontrol.NewTokenBucketRateLimiter(1, 5)},
	} {
		rc := rest.CopyConfig(base)
		rc.GroupVersion, rc.APIPath = &one.gv, "/apis"
		if one.gv.Group == "" {
			rc.APIPath = "/api"
		}
		rc.NegotiatedSerializer, rc.RateLimiter = codecs, one.limit
		if *one.to, err = rest.RESTClientForConfigAndClient(rc, connection); err != nil {
			return nil, fmt.Errorf("set up client of %s: %w", one.gv, err)
		}
	}
	return out, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // two types with the same name: a programming error
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// password matches what comes before the host of a URL: a user with a password, or any text behind a scheme. Text that is not a valid URL is matched
// too, because errors quote such URLs.
var password = regexp.MustCompile(`(\w+://)[^\s"']*@|[^\s"'@]*:[^\s"']*@`)

// redacted returns a text without the passwords of its URLs: addresses of servers and proxies are logged, and shown on pages that require no
// password.
func redacted(text string) string { return password.ReplaceAllString(text, "${1}xxxxx@") }

// withoutPasswords returns err. If the redacted text differs, it returns an error
// with that text instead.
func withoutPasswords(err error) error {
	if text := redacted(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
