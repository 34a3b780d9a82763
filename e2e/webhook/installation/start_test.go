package installation_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

func TestReplicasThatStartAtOnceAgree(t *testing.T) {
	for _, count := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d replicas", count), func(t *testing.T) {
			in := install(t, enforce, count)
			bundles := in.bundles()
			if len(bundles) != 3 {
				t.Fatalf("there are %d caBundles, want 3", len(bundles))
			}
			secret, err := in.Admin.CoreV1().Secrets(installedNamespace).Get(t.Context(), installedSecret, metav1.GetOptions{})
			must.Succeed(t, err)
			for i, bundle := range bundles {
				if !bytes.Equal(bytes.TrimSpace(bundle), bytes.TrimSpace(secret.Data["ca.crt"])) || bytes.Count(bundle, []byte("BEGIN")) != 1 {
					t.Errorf("caBundle %d is not the Secret's only CA:\n%s", i, bundle)
				}
			}
			block, _ := pem.Decode(secret.Data["ca.crt"])
			authority, err := x509.ParseCertificate(block.Bytes)
			must.Succeed(t, err)
			block, _ = pem.Decode(secret.Data["tls.crt"])
			for _, r := range in.running() {
				expires, err := r.metric("vicinity_webhook_certificate_expiry_timestamp_seconds", `certificate="authority"`)
				if err != nil || int64(expires) != authority.NotAfter.Unix() {
					t.Errorf("%s reports that its CA expires at %v (%v), want %s", r.pod.Name, expires, err, authority.NotAfter)
				}
				served, err := in.handshake(r, bundles[0], &tls.Config{MinVersion: tls.VersionTLS13})
				must.Succeed(t, err)
				if !bytes.Equal(served.PeerCertificates[0].Raw, block.Bytes) {
					t.Errorf("%s serves another certificate than that of the Secret", r.pod.Name)
				}
			}
			in.callEveryReplica()
		})
	}
}

// bundles returns the caBundles of all webhooks.
func (in *installation) bundles() [][]byte {
	in.t.Helper()
	registration := in.Admin.AdmissionregistrationV1()
	mutating, err := registration.MutatingWebhookConfigurations().Get(in.t.Context(), installedName, metav1.GetOptions{})
	must.Succeed(in.t, err)
	validating, err := registration.ValidatingWebhookConfigurations().Get(in.t.Context(), installedName, metav1.GetOptions{})
	must.Succeed(in.t, err)
	var all [][]byte
	for _, webhook := range mutating.Webhooks {
		all = append(all, webhook.ClientConfig.CABundle)
	}
	for _, webhook := range validating.Webhooks {
		all = append(all, webhook.ClientConfig.CABundle)
	}
	return all
}

// handshake makes a handshake with a replica, as an API server with this caBundle does.
func (in *installation) handshake(r *replica, bundle []byte, config *tls.Config) (tls.ConnectionState, error) {
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(bundle) {
		return tls.ConnectionState{}, errors.New("the caBundle has no certificate")
	}
	config.ServerName = installedName + "." + installedNamespace + ".svc"
	plain, err := in.node.Dial("tcp", r.address(webhookPort), wait.Timeout)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer plain.Close()
	connection := tls.Client(plain, config)
	if err := errors.Join(plain.SetDeadline(time.Now().Add(wait.Timeout)), connection.Handshake()); err != nil {
		return tls.ConnectionState{}, err
	}
	return connection.ConnectionState(), nil
}

// callEveryReplica makes concurrent requests until the API server has called each replica: when all its connections are
// in use, it opens one to any replica. With failurePolicy Fail a failed call fails the request.
func (in *installation) callEveryReplica() {
	in.t.Helper()
	services := in.Admin.CoreV1().Services(probedNamespace)
	wait.Success(in.t, "every replica is called", func() error {
		var requests sync.WaitGroup
		errs := make(chan error, 16)
		for range cap(errs) {
			requests.Go(func() {
				_, err := services.Create(in.t.Context(), serviceOf("right", map[string]string{keysAnnotation: "*"}),
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				errs <- err
			})
		}
		requests.Wait()
		for range cap(errs) {
			must.Succeed(in.t, <-errs)
		}
		for _, r := range in.running() {
			count, err := r.metric("vicinity_webhook_review_duration_seconds_count", `outcome="allowed"`, `path="/validate-services"`)
			if err != nil || count == 0 {
				return errors.Join(err, fmt.Errorf("%s was not called", r.pod.Name))
			}
		}
		return nil
	})
}
