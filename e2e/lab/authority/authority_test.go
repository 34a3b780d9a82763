package authority_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/lab/authority"
)

func newAuthority(t *testing.T) (*authority.Authority, *x509.CertPool) {
	t.Helper()
	a, err := authority.New("test")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.Certificate()) {
		t.Fatal("the authority's certificate is not PEM")
	}
	return a, pool
}

// parse parses a pair. It fails the test if the key does not belong to the certificate.
func parse(t *testing.T, pair authority.Pair) *x509.Certificate {
	t.Helper()
	cert, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

func TestAClientIsAUserInGroups(t *testing.T) {
	a, pool := newAuthority(t)
	pair, err := a.Client("system:node:node-1", "others", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	client := parse(t, pair)
	if client.Subject.CommonName != "system:node:node-1" {
		t.Errorf("certificate of user %q, want system:node:node-1", client.Subject.CommonName)
	}
	if diff := cmp.Diff([]string{"others", "system:nodes"}, client.Subject.Organization); diff != "" {
		t.Errorf("the groups differ (-want +got):\n%s", diff)
	}
	if _, err := client.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if _, err := client.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client certificate is valid for a server")
	}
}

func TestAServerIsVerifiedByItsNamesAndAddressesOnly(t *testing.T) {
	a, pool := newAuthority(t)
	pair, err := a.Server("server", []string{"kubernetes.default.svc"}, []net.IP{net.ParseIP("10.96.0.1"), net.ParseIP("fd00::1")})
	if err != nil {
		t.Fatal(err)
	}
	server := parse(t, pair)
	for name, want := range map[string]bool{
		"kubernetes.default.svc": true, "10.96.0.1": true, "fd00::1": true, "kubernetes": false, "10.96.0.2": false,
	} {
		_, err := server.Verify(x509.VerifyOptions{Roots: pool, DNSName: name})
		if got := err == nil; got != want {
			t.Errorf("valid for %s: %t, want %t: %v", name, got, want, err)
		}
	}
}

func TestAnotherAuthorityIsNotTrusted(t *testing.T) {
	a, _ := newAuthority(t)
	_, otherPool := newAuthority(t)
	pair, err := a.Client("admin")
	if err != nil {
		t.Fatal(err)
	}
	options := x509.VerifyOptions{Roots: otherPool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := parse(t, pair).Verify(options); err == nil {
		t.Error("another authority's pool accepts the certificate")
	}
}
