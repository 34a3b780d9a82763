package admission_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
)

// certsSettled is for tests in which nothing is renewed by the passing of time.
var certsSettled = certs.Settings{Settle: time.Second}

func TestReplicasThatStartAtOnceWithoutASecretAgreeOnOneCA(t *testing.T) {
	s := newCertsSite(t)
	for range 3 {
		s.start(certsSettled)
	}
	s.configure()
	s.agreed()
	trusted, err := s.trusted()
	if err != nil || len(trusted) != 1 {
		t.Fatalf("the Secret has %d CAs (%v), want one", len(trusted), err)
	}
	bundles, err := s.bundles()
	if err != nil || len(bundles) != 6 {
		t.Fatalf("there are %d caBundles (%v), want 6", len(bundles), err)
	}
	for i, bundle := range bundles {
		if found, err := parseCertificates(bundle); err != nil || len(found) != 1 || !found[0].Equal(trusted[0]) {
			t.Errorf("caBundle %d is not the CA of the Secret", i)
		}
	}
	for i, replica := range s.replicas {
		if err := replica.Ready(); err != nil {
			t.Errorf("replica %d is not ready: %v", i, err)
		}
		if replica.calls.Load() == 0 {
			t.Errorf("replica %d was not called", i)
		}
		if got := replica.Expiry().CA; !got.Equal(trusted[0].NotAfter) {
			t.Errorf("replica %d says that its CA expires at %s, want %s", i, got, trusted[0].NotAfter)
		}
	}
}

func TestARotationFailsNoHandshake(t *testing.T) {
	s := newCertsSite(t)
	for range 3 {
		s.start(certs.Settings{CA: 60 * time.Second, Leaf: 20 * time.Second, Settle: time.Second})
	}
	s.configure()
	s.agreed()
	first, err := s.trusted()
	if err != nil {
		t.Fatal(err)
	}
	var leaves []string
	s.underTraffic(func() {
		certsEventually(t, "a new CA, and the old one gone", func() error {
			secret, err := s.secret()
			if err != nil {
				return err
			}
			if leaf := string(secret.Data["tls.crt"]); !slices.Contains(leaves, leaf) {
				leaves = append(leaves, leaf)
			}
			now, err := parseCertificates(secret.Data["ca.crt"])
			if err != nil {
				return err
			}
			if len(now) != 1 || now[0].Equal(first[0]) || t.Failed() {
				return fmt.Errorf("%d CAs", len(now))
			}
			return nil
		})
	})
	if len(leaves) < 4 {
		t.Errorf("%d certificates, want 4 or more", len(leaves))
	}
}

func TestReplicasThatComeAndGoDuringARotationFailNoHandshake(t *testing.T) {
	s := newCertsSite(t)
	settings := certs.Settings{CA: 60 * time.Second, Leaf: 20 * time.Second, Settle: time.Second}
	for range 2 {
		s.start(settings)
	}
	s.configure()
	s.agreed()
	first, err := s.trusted()
	if err != nil {
		t.Fatal(err)
	}
	s.underTraffic(func() {
		certsEventually(t, "another CA", func() error {
			// One that comes, and is killed at whatever it is doing. It serves nobody.
			other := s.launch(settings)
			time.Sleep(time.Second)
			other.stop()
			now, err := s.trusted()
			if err != nil || slices.ContainsFunc(now, first[0].Equal) {
				return errors.Join(err, errors.New("the first one is still there"))
			}
			return nil
		})
	})
}

func TestACaBundleThatSomebodyResetsIsRepaired(t *testing.T) {
	s := newCertsSite(t)
	s.start(certsSettled)
	s.configure()
	s.agreed()
	registration := s.client.AdmissionregistrationV1()
	for name, text := range map[string][]byte{"empty": nil, "another CA": foreignCA(t)} {
		t.Run(name, func(t *testing.T) {
			certsEventually(t, "the reset", func() error {
				found, err := registration.ValidatingWebhookConfigurations().Get(t.Context(), certsConfiguration, metav1.GetOptions{})
				if err != nil {
					return err
				}
				found.Webhooks[0].ClientConfig.CABundle = text
				_, err = registration.ValidatingWebhookConfigurations().Update(t.Context(), found, metav1.UpdateOptions{})
				return err
			})
			s.agreed()
		})
	}
	t.Run("deleted and applied again", func(t *testing.T) {
		s.removeConfigurations()
		if _, err := s.bundles(); !apierrors.IsNotFound(err) {
			t.Fatalf("bundles() = %v, want NotFound", err)
		}
		s.configure()
		s.agreed()
	})
}

func TestASecretThatIsDeletedOrSpoiledFailsNoHandshake(t *testing.T) {
	s := newCertsSite(t)
	for range 2 {
		s.start(certsSettled)
	}
	s.configure()
	s.agreed()
	secrets := s.client.CoreV1().Secrets(s.namespace)
	spoil := func(key string, text []byte) func() error {
		return func() error {
			found, err := s.secret()
			if err != nil {
				return err
			}
			found.Data[key] = text
			_, err = secrets.Update(t.Context(), found, metav1.UpdateOptions{})
			return err
		}
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"deleted", func() error { return secrets.Delete(t.Context(), certsSecret, metav1.DeleteOptions{}) }},
		{"no CA", spoil("ca.crt", nil)},
		{"another CA", spoil("ca.crt", foreignCA(t))},
		{"no CA's key", spoil("ca.key", []byte("nonsense"))},
		{"no certificate", spoil("tls.crt", []byte("-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, err := s.secret()
			if err != nil {
				t.Fatal(err)
			}
			s.underTraffic(func() {
				certsEventually(t, c.name, c.do)
				certsEventually(t, "a new certificate is served by all", func() error {
					now, err := s.secret()
					if err != nil {
						return err
					}
					block, _ := pem.Decode(now.Data["tls.crt"])
					if block == nil || bytes.Equal(now.Data["tls.crt"], before.Data["tls.crt"]) {
						return errors.New("the Secret has none")
					}
					for i, replica := range s.replicas {
						if served, err := replica.GetCertificate(nil); err != nil || !bytes.Equal(served.Certificate[0], block.Bytes) {
							return fmt.Errorf("replica %d serves another one (%w)", i, err)
						}
					}
					return nil
				})
			})
			s.agreed()
		})
	}
}

func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, certificate)
	}
	return all, nil
}

// foreignCA is the certificate of a CA that has nothing to do with the webhook: that of the control plane.
func foreignCA(t *testing.T) []byte {
	t.Helper()
	return api.Authority().Certificate()
}
