package certificates_test

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

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
)

// settled is for tests in which nothing is due for renewal.
var settled = certs.Settings{CA: certs.DefaultCA, Leaf: certs.DefaultLeaf, TrustDelay: time.Second}

// shortLived certificates are renewed while a test waits. On a busy machine a renewal may be twenty seconds late.
var shortLived = certs.Settings{CA: 180 * time.Second, Leaf: time.Minute, TrustDelay: time.Second}

// createAgedSecret creates the Secret as it is after half of a CA's lifetime, so that a rotation is due in half a minute. It returns
// the CA.
func (in *installation) createAgedSecret() *x509.Certificate {
	in.t.Helper()
	first := in.launch(certs.Settings{CA: shortLived.CA / 2, Leaf: shortLived.Leaf / 2, TrustDelay: time.Second})
	var trusted []*x509.Certificate
	wait.Success(in.t, "the Secret", func() (err error) {
		trusted, err = in.trustedCAs()
		return err
	})
	first.stop()
	return trusted[0]
}

func TestReplicasThatComeAndGoDuringARotationFailNoHandshake(t *testing.T) {
	in := install(t)
	first := in.createAgedSecret()
	for range 2 {
		in.start(shortLived)
	}
	in.configure()
	in.waitForTrust()
	in.underTraffic(func() {
		wait.Within(t, shortLived.CA+wait.Timeout, "another CA", func() bool {
			// A replica that starts, and is killed in the middle of its work. It serves no request.
			other := in.launch(shortLived)
			time.Sleep(time.Second)
			other.stop()
			now, err := in.trustedCAs()
			must.Succeed(t, err)
			return t.Failed() || !slices.ContainsFunc(now, first.Equal)
		})
	})
}

func TestAResetCaBundleIsRepaired(t *testing.T) {
	in := install(t)
	in.start(settled)
	in.configure()
	in.waitForTrust()
	registration := in.client.AdmissionregistrationV1()
	for name, text := range map[string][]byte{"empty": nil, "another CA": foreignCA(t)} {
		t.Run(name, func(t *testing.T) {
			wait.Success(t, "the reset", func() error {
				found, err := registration.ValidatingWebhookConfigurations().Get(t.Context(), configurationName, metav1.GetOptions{})
				if err != nil {
					return err
				}
				found.Webhooks[0].ClientConfig.CABundle = text
				_, err = registration.ValidatingWebhookConfigurations().Update(t.Context(), found, metav1.UpdateOptions{})
				return err
			})
			in.waitForTrust()
		})
	}
	t.Run("deleted and applied again", func(t *testing.T) {
		in.removeConfigurations()
		if _, err := in.bundles(); !apierrors.IsNotFound(err) {
			t.Fatalf("bundles() = %v, want NotFound", err)
		}
		in.configure()
		in.waitForTrust()
	})
}

// overwriteKey returns a function that overwrites a key of the Secret.
func (in *installation) overwriteKey(key string, text []byte) func() error {
	return func() error {
		found, err := in.secret()
		if err != nil {
			return err
		}
		found.Data[key] = text
		_, err = in.client.CoreV1().Secrets(in.namespace).Update(in.t.Context(), found, metav1.UpdateOptions{})
		return err
	}
}

// expectRenewal calls do to modify the Secret, and waits until all replicas serve a certificate that they did not have
// before.
func (in *installation) expectRenewal(what string, do func() error) {
	in.t.Helper()
	before, err := in.secret()
	must.Succeed(in.t, err)
	wait.Success(in.t, what, do)
	wait.Success(in.t, "all replicas serve a new certificate", func() error {
		now, err := in.secret()
		if err != nil {
			return err
		}
		block, _ := pem.Decode(now.Data["tls.crt"])
		if block == nil || bytes.Equal(now.Data["tls.crt"], before.Data["tls.crt"]) {
			return errors.New("the Secret has no new certificate")
		}
		for i, replica := range in.replicas {
			if served, err := replica.GetCertificate(nil); err != nil || !bytes.Equal(served.Certificate[0], block.Bytes) {
				return fmt.Errorf("replica %d serves another certificate (%v)", i, err) //nolint:errorlint // err may be nil
			}
		}
		return nil
	})
}

var invalidCertificate = []byte("-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n")

func TestASecretThatHasLostAKeyOrItsCertificateFailsNoHandshake(t *testing.T) {
	in := install(t)
	for range 2 {
		in.start(settled)
	}
	in.configure()
	in.waitForTrust()
	for name, do := range map[string]func() error{
		"invalid CA key": in.overwriteKey("ca.key", []byte("nonsense")), "invalid certificate": in.overwriteKey("tls.crt", invalidCertificate),
	} {
		t.Run(name, func(*testing.T) {
			in.underTraffic(func() { in.expectRenewal(name, do) })
			in.waitForTrust()
		})
	}
}

// TestASecretWhoseCAIsGoneIsRecreated ensures that nothing trusts the old CA afterwards, because its key may have
// leaked.
func TestASecretWhoseCAIsGoneIsRecreated(t *testing.T) {
	in := install(t)
	for range 2 {
		in.start(settled)
	}
	in.configure()
	in.waitForTrust()
	for name, do := range map[string]func() error{
		"deleted": func() error {
			return in.client.CoreV1().Secrets(in.namespace).Delete(t.Context(), secretName, metav1.DeleteOptions{})
		},
		"no CA":      in.overwriteKey("ca.crt", nil),
		"another CA": in.overwriteKey("ca.crt", foreignCA(t)),
	} {
		t.Run(name, func(t *testing.T) {
			before, err := in.trustedCAs()
			must.Succeed(t, err)
			in.expectRenewal(name, do)
			in.waitForTrust()
			bundles, err := in.bundles()
			must.Succeed(t, err)
			for i, bundle := range bundles {
				if now, err := parseCertificates(bundle); err != nil || slices.ContainsFunc(now, before[0].Equal) {
					t.Errorf("caBundle %d still trusts the old CA (%v)", i, err)
				}
			}
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

// foreignCA returns the certificate of a CA that is unrelated to the webhook: that of the control plane.
func foreignCA(t *testing.T) []byte {
	t.Helper()
	return api.Authority().Certificate()
}
