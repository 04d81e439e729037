package testcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// pki is the certificate authority of one cluster; it exists as long as the scratch
// folder.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// subject is what a certificate states about its holder.
type subject struct {
	user, group string
	addrs       []netip.Addr // server certificates only
}

func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	key, err := p.newKey("ca")
	if err != nil {
		return nil, err
	}
	t := p.template(subject{user: "fairlead-test-ca"})
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	p.cert, p.key = t, key
	return p, p.sign("ca", t, key)
}

// issue writes NAME.crt and NAME.key.
func (p *pki) issue(name string, s subject) error {
	key, err := p.newKey(name)
	if err != nil {
		return err
	}
	t := p.template(s)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(s.addrs) > 0 {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		t.DNSNames = []string{"kubernetes", "localhost"}
	}
	for _, a := range s.addrs {
		t.IPAddresses = append(t.IPAddresses, net.IP(a.AsSlice()))
	}
	return p.sign(name, t, key)
}

func (p *pki) template(s subject) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // crypto/rand does not fail since Go 1.24
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: s.user},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	if s.group != "" {
		t.Subject.Organization = []string{s.group}
	}
	return t
}

func (p *pki) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key %s: %w", name, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key %s: %w", name, err)
	}
	return key, p.write(name+".key", "EC PRIVATE KEY", der)
}

func (p *pki) sign(name string, t *x509.Certificate, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, t, p.cert, &key.PublicKey, p.key)
	if err != nil {
		return fmt.Errorf("sign certificate %s: %w", name, err)
	}
	return p.write(name+".crt", "CERTIFICATE", der)
}

func (p *pki) write(file, kind string, der []byte) error {
	b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(p.path(file), b, 0o600)
}

func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }
