package certificates_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
)

// The names in manifests/webhook.
const (
	secretName        = "vicinity-webhook-tls"
	configurationName = "vicinity-webhook"
	accountName       = "vicinity-webhook"
)

// installation has the certificate-related parts of a webhook installation, in a namespace of its own. The replicas
// have exactly the permissions in manifests/webhook.
type installation struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	names     []string // DNS names of the webhook
	forbidden atomic.Pointer[string]
	replicas  []*replica
}

func install(t *testing.T) *installation {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "certificates-"}}
	api.Create(t, namespace)
	in := &installation{t: t, client: api.Admin, namespace: namespace.Name}
	// The API servers of a cluster call a Service; the one here calls a URL.
	in.names = append(certs.ServiceNames(accountName, in.namespace), "localhost")
	in.permit()
	t.Cleanup(func() {
		in.removeConfigurations()
		if url := in.forbidden.Load(); url != nil {
			t.Errorf("the permissions in manifests/webhook do not suffice: forbidden: %s", *url)
		}
	})
	return in
}

// permit grants the ServiceAccount exactly the permissions in manifests/webhook.
func (in *installation) permit() {
	in.t.Helper()
	role, clusterRole := shippedRoles(in.t)
	role.Name, role.Namespace = in.namespace, in.namespace
	clusterRole.Name = in.namespace
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: in.namespace, Name: accountName}}
	meta := metav1.ObjectMeta{Namespace: in.namespace, Name: in.namespace}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: in.namespace}
	}
	api.Create(in.t,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: accountName}}, &role, &clusterRole,
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref("Role")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: in.namespace}, Subjects: subjects, RoleRef: ref("ClusterRole")})
	in.waitForPermission()
}

// shippedRoles reads the permissions that users apply.
func shippedRoles(t *testing.T) (role rbacv1.Role, clusterRole rbacv1.ClusterRole) {
	t.Helper()
	text, err := os.ReadFile("../../../manifests/webhook/base/access.yaml")
	must.Succeed(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		err := yaml.Unmarshal([]byte(document), &kind)
		switch kind.Kind {
		case "Role":
			err = yaml.UnmarshalStrict([]byte(document), &role)
		case "ClusterRole":
			err = yaml.UnmarshalStrict([]byte(document), &clusterRole)
		}
		must.Succeed(t, err)
	}
	if len(role.Rules) == 0 || len(clusterRole.Rules) == 0 {
		t.Fatalf("rules missing in access.yaml: %+v, %+v", role, clusterRole)
	}
	return role, clusterRole
}

// waitForPermission waits until the API server applies the rules.
func (in *installation) waitForPermission() {
	in.t.Helper()
	client, err := kubernetes.NewForConfig(in.accountConfig())
	must.Succeed(in.t, err)
	wait.Success(in.t, "the permissions", func() error {
		_, err1 := client.CoreV1().Secrets(in.namespace).Get(in.t.Context(), secretName, metav1.GetOptions{})
		_, err2 := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(in.t.Context(), configurationName, metav1.GetOptions{})
		for _, err := range []error{err1, err2} {
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	})
}

func (in *installation) accountConfig() *rest.Config {
	in.t.Helper()
	return api.Account(in.t, in.namespace, accountName)
}

// replica has the certificate of one replica, and a webhook that serves it and allows everything.
type replica struct {
	*certs.SelfSigned
	address string
	stop    func()
}

// start starts a replica with these durations. The configurations that configure creates refer to it.
func (in *installation) start(settings certs.Settings) {
	in.t.Helper()
	in.replicas = append(in.replicas, in.launch(settings))
}

// launch starts a replica to which no configuration refers.
func (in *installation) launch(settings certs.Settings) *replica {
	in.t.Helper()
	config := in.accountConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &forbiddenRecorder{next, &in.forbidden} })
	log := logs.New(in.t, "a replica")
	settings.Namespace, settings.Secret, settings.Names = in.namespace, secretName, in.names
	settings.Mutating, settings.Validating = configurationName, configurationName
	r := &replica{}
	settings.Log, settings.Observer = log.Logger(), r
	manager, err := certs.NewSelfSigned(config, settings)
	must.Succeed(in.t, err)
	r.SelfSigned = manager
	ctx, cancel := context.WithCancel(in.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				in.t.Errorf("Run() = %v, want nil when the context ends", err)
			}
		case <-time.After(wait.Timeout):
			in.t.Error("Run did not return after its context ended")
		}
	})
	in.t.Cleanup(func() {
		r.stop()
		for _, kind := range []string{"PRIVATE KEY", "BEGIN"} {
			if log.Has(kind) {
				in.t.Errorf("the log contains %q", kind)
			}
		}
	})
	r.serve(in.t)
	return r
}

// serve responds to reviews. Every connection has a handshake of its own.
func (r *replica) serve(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	r.address = listener.Addr().String()
	server := &http.Server{
		Handler: http.HandlerFunc(allow), ReadHeaderTimeout: wait.Timeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		TLSConfig: &tls.Config{GetCertificate: r.GetCertificate, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}},
	}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { server.Close() })
}

func allow(w http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// configure creates both configurations, with a webhook for each started replica. Without these webhooks nothing can be
// created in the namespace.
func (in *installation) configure() {
	in.t.Helper()
	meta := metav1.ObjectMeta{Name: configurationName}
	registration, ctx := in.client.AdmissionregistrationV1(), in.t.Context()
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
	fail, none, seconds := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(20)
	for i, replica := range in.replicas {
		url := "https://localhost:" + replica.address[strings.LastIndex(replica.address, ":")+1:] + "/"
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: in.namespace}}
		webhook := admissionregistrationv1.ValidatingWebhook{
			Name: fmt.Sprintf("replica-%d.certs.vicinity.dev", i), ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: selector,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}
		validating.Webhooks = append(validating.Webhooks, webhook)
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: webhook.Name, ClientConfig: webhook.ClientConfig, FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &seconds,
			AdmissionReviewVersions: webhook.AdmissionReviewVersions, NamespaceSelector: selector, Rules: webhook.Rules,
		})
	}
	_, err1 := registration.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{})
	_, err2 := registration.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		in.t.Fatal(err)
	}
}

func (in *installation) removeConfigurations() {
	registration, ctx := in.client.AdmissionregistrationV1(), context.WithoutCancel(in.t.Context())
	err1 := registration.MutatingWebhookConfigurations().Delete(ctx, configurationName, metav1.DeleteOptions{})
	err2 := registration.ValidatingWebhookConfigurations().Delete(ctx, configurationName, metav1.DeleteOptions{})
	for _, err := range []error{err1, err2} {
		if err != nil && !apierrors.IsNotFound(err) {
			in.t.Error(err)
		}
	}
}

// bundles returns the caBundle of every webhook of both configurations.
func (in *installation) bundles() ([][]byte, error) {
	registration, ctx := in.client.AdmissionregistrationV1(), in.t.Context()
	mutating, err := registration.MutatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	validating, err := registration.ValidatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, webhook := range mutating.Webhooks {
		all = append(all, webhook.ClientConfig.CABundle)
	}
	for _, webhook := range validating.Webhooks {
		all = append(all, webhook.ClientConfig.CABundle)
	}
	return all, nil
}

// handshake makes a handshake with a replica, as an API server with this caBundle would.
func (in *installation) handshake(replica *replica, bundle []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("the caBundle has no certificate")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: in.names[0], MinVersion: tls.VersionTLS13}}
	connection, err := dialer.DialContext(in.t.Context(), "tcp", replica.address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// handshakeAll makes a handshake with every replica for every distinct caBundle.
func (in *installation) handshakeAll() error {
	bundles, err := in.bundles()
	if err != nil {
		return err
	}
	slices.SortFunc(bundles, bytes.Compare)
	for _, bundle := range slices.CompactFunc(bundles, bytes.Equal) {
		for i, replica := range in.replicas {
			if err := in.handshake(replica, bundle); err != nil {
				return fmt.Errorf("replica %d: %w", i, err)
			}
		}
	}
	return nil
}

// review makes the API server call every webhook of both configurations.
func (in *installation) review() error {
	_, err := in.client.CoreV1().ConfigMaps(in.namespace).Create(in.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "reviewed-"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// waitForTrust waits until every replica is trusted, by our handshakes and by the API server.
func (in *installation) waitForTrust() {
	in.t.Helper()
	wait.Success(in.t, "handshakes with all replicas", in.handshakeAll)
	wait.Success(in.t, "the API server calls all replicas", in.review)
}

// underTraffic makes handshakes and reviews almost continuously while do runs. Each failure fails the test.
func (in *installation) underTraffic(do func()) {
	in.t.Helper()
	ctx, stop := context.WithCancel(in.t.Context())
	var traffic sync.WaitGroup
	var counts [2]atomic.Int64
	for i, try := range []func() error{in.handshakeAll, in.review} {
		traffic.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
				if err := try(); err != nil {
					in.t.Errorf("%s: after %d successes: %v", time.Now().Format(time.StampMilli), counts[i].Load(), err)
					return
				}
				counts[i].Add(1)
			}
		})
	}
	defer traffic.Wait()
	defer stop()
	do()
	wait.Success(in.t, "enough traffic for the test", func() error {
		if in.t.Failed() || counts[0].Load() >= 10 && counts[1].Load() >= 10 {
			return nil
		}
		return errors.New("not yet")
	})
	in.t.Logf("%d rounds of handshakes and %d of reviews", counts[0].Load(), counts[1].Load())
}

// secret returns the Secret.
func (in *installation) secret() (*corev1.Secret, error) {
	return in.client.CoreV1().Secrets(in.namespace).Get(in.t.Context(), secretName, metav1.GetOptions{})
}

// trustedCAs returns the CAs in the Secret.
func (in *installation) trustedCAs() ([]*x509.Certificate, error) {
	secret, err := in.secret()
	if err != nil {
		return nil, err
	}
	return parseCertificates(secret.Data["ca.crt"])
}

// forbiddenRecorder records the first request that the API server forbids.
type forbiddenRecorder struct {
	next  http.RoundTripper
	first *atomic.Pointer[string]
}

func (f *forbiddenRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := f.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusForbidden {
		text := request.Method + " " + request.URL.String()
		f.first.CompareAndSwap(nil, &text)
	}
	return response, err
}

// The replica implements the Observer of its certificate.

func (*replica) CertificateExpires(time.Time)             {}
func (*replica) AuthorityExpires(time.Time)               {}
func (*replica) CertificateFailed(certs.Operation, error) {}
