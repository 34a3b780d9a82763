package admission_test

import (
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

	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
)

// The names in manifests/webhook.
const (
	certsSecret        = "vicinity-webhook-tls"
	certsConfiguration = "vicinity-webhook"
	certsAccount       = "vicinity-webhook"
)

// certsPatience is for a machine that is busy with other things.
const certsPatience = 2 * time.Minute

func certsEventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	for deadline := time.Now().Add(certsPatience); ; time.Sleep(20 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s, not yet: %s: %v", certsPatience, what, err)
		}
	}
}

// certsSite is an installation of the webhook, as far as certificates are concerned, in a namespace of its own. The replicas may do there
// what manifests/webhook permits, and nothing else.
type certsSite struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	names     []string // DNS names of the webhook
	forbidden atomic.Pointer[string]
	replicas  []*certsReplica
}

func newCertsSite(t *testing.T) *certsSite {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	s := &certsSite{t: t, client: client}
	made, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "certs-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.namespace = made.Name
	// API servers of a cluster ask a Service; the one here asks a URL.
	s.names = append(certs.ServiceNames(certsAccount, s.namespace), "localhost")
	s.permit()
	t.Cleanup(func() {
		s.removeConfigurations()
		if url := s.forbidden.Load(); url != nil {
			t.Errorf("the permissions in manifests/webhook are not enough: forbidden: %s", *url)
		}
	})
	return s
}

// permit gives the ServiceAccount the permissions in manifests/webhook, word for word.
func (s *certsSite) permit() {
	s.t.Helper()
	role, clusterRole := shippedRoles(s.t)
	role.Name, role.Namespace = s.namespace, s.namespace
	clusterRole.Name = s.namespace
	rbac, ctx := s.client.RbacV1(), s.t.Context()
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: certsAccount}}
	meta := metav1.ObjectMeta{Name: s.namespace}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: s.namespace}
	}
	_, err1 := s.client.CoreV1().ServiceAccounts(s.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: certsAccount}}, metav1.CreateOptions{})
	_, err2 := rbac.Roles(s.namespace).Create(ctx, &role, metav1.CreateOptions{})
	_, err3 := rbac.ClusterRoles().Create(ctx, &clusterRole, metav1.CreateOptions{})
	_, err4 := rbac.RoleBindings(s.namespace).Create(ctx,
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref("Role")}, metav1.CreateOptions{})
	_, err5 := rbac.ClusterRoleBindings().Create(ctx,
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref("ClusterRole")}, metav1.CreateOptions{})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		s.t.Fatal(err)
	}
	s.awaitPermission()
}

// shippedRoles reads the permissions that users apply.
func shippedRoles(t *testing.T) (role rbacv1.Role, clusterRole rbacv1.ClusterRole) {
	t.Helper()
	text, err := os.ReadFile(manifests + "/base/access.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		err := yaml.Unmarshal([]byte(document), &kind)
		switch kind.Kind {
		case "Role":
			err = yaml.UnmarshalStrict([]byte(document), &role)
		case "ClusterRole":
			err = yaml.UnmarshalStrict([]byte(document), &clusterRole)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(role.Rules) == 0 || len(clusterRole.Rules) == 0 {
		t.Fatalf("the manifest has %+v and %+v", role, clusterRole)
	}
	return role, clusterRole
}

// awaitPermission waits until the API server has heard of the rules.
func (s *certsSite) awaitPermission() {
	s.t.Helper()
	client, err := kubernetes.NewForConfig(s.accountConfig())
	if err != nil {
		s.t.Fatal(err)
	}
	certsEventually(s.t, "the permissions", func() error {
		_, err1 := client.CoreV1().Secrets(s.namespace).Get(s.t.Context(), certsSecret, metav1.GetOptions{})
		_, err2 := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(s.t.Context(), certsConfiguration, metav1.GetOptions{})
		for _, err := range []error{err1, err2} {
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	})
}

func (s *certsSite) accountConfig() *rest.Config {
	s.t.Helper()
	config, err := api.ServiceAccountConfig(s.t.Context(), s.namespace, certsAccount)
	if err != nil {
		s.t.Fatal(err)
	}
	return config
}

// certsReplica is the certificate of one replica, and a webhook that serves it and allows everything.
type certsReplica struct {
	*certs.SelfMade
	address          string
	calls            atomic.Int64
	authorityExpires atomic.Int64 // in seconds since 1970
	stop             func()
}

// start starts a replica that the configurations name, with these durations.
func (s *certsSite) start(settings certs.Settings) {
	s.t.Helper()
	s.replicas = append(s.replicas, s.launch(settings))
}

// launch starts a replica of which nobody knows yet.
func (s *certsSite) launch(settings certs.Settings) *certsReplica {
	s.t.Helper()
	config := s.accountConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &forbiddenSpy{next, &s.forbidden} })
	log := &certsLog{}
	settings.Namespace, settings.Secret, settings.Names = s.namespace, certsSecret, s.names
	settings.Mutating, settings.Validating = certsConfiguration, certsConfiguration
	r := &certsReplica{}
	settings.Log, settings.Observer = slog.New(slog.NewTextHandler(log, nil)), r
	made, err := certs.NewSelfMade(config, settings)
	if err != nil {
		s.t.Fatal(err)
	}
	r.SelfMade = made
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				s.t.Errorf("Run() = %v, want nil when the context ends", err)
			}
		case <-time.After(certsPatience):
			s.t.Error("Run goes on after its context has ended")
		}
	})
	s.t.Cleanup(func() {
		r.stop()
		if text := log.String(); s.t.Failed() {
			s.t.Logf("the log of %s:\n%s", r.address, text)
		}
		for _, kind := range []string{"PRIVATE KEY", "BEGIN"} {
			if strings.Contains(log.String(), kind) {
				s.t.Errorf("the log has %q in it", kind)
			}
		}
	})
	r.serve(s.t)
	return r
}

// serve answers reviews. Every connection is a handshake of its own.
func (r *certsReplica) serve(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = listener.Addr().String()
	server := &http.Server{
		Handler: http.HandlerFunc(r.allow), ReadHeaderTimeout: certsPatience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		TLSConfig: &tls.Config{GetCertificate: r.GetCertificate, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}},
	}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { server.Close() })
}

func (r *certsReplica) allow(w http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.calls.Add(1)
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// configure makes both configurations, with a webhook for each replica that started. Nothing in the namespace can be made without them.
func (s *certsSite) configure() {
	s.t.Helper()
	meta := metav1.ObjectMeta{Name: certsConfiguration}
	registration, ctx := s.client.AdmissionregistrationV1(), s.t.Context()
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
	fail, none, seconds := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(20)
	for i, replica := range s.replicas {
		url := "https://localhost:" + replica.address[strings.LastIndex(replica.address, ":")+1:] + "/"
		here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}}
		webhook := admissionregistrationv1.ValidatingWebhook{
			Name: fmt.Sprintf("replica-%d.certs.vicinity.dev", i), ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: here,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}
		validating.Webhooks = append(validating.Webhooks, webhook)
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: webhook.Name, ClientConfig: webhook.ClientConfig, FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &seconds,
			AdmissionReviewVersions: webhook.AdmissionReviewVersions, NamespaceSelector: here, Rules: webhook.Rules,
		})
	}
	_, err1 := registration.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{})
	_, err2 := registration.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		s.t.Fatal(err)
	}
}

func (s *certsSite) removeConfigurations() {
	registration, ctx := s.client.AdmissionregistrationV1(), context.WithoutCancel(s.t.Context())
	err1 := registration.MutatingWebhookConfigurations().Delete(ctx, certsConfiguration, metav1.DeleteOptions{})
	err2 := registration.ValidatingWebhookConfigurations().Delete(ctx, certsConfiguration, metav1.DeleteOptions{})
	for _, err := range []error{err1, err2} {
		if err != nil && !apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
	}
}

// bundles returns the caBundle of every webhook of both configurations.
func (s *certsSite) bundles() ([][]byte, error) {
	registration, ctx := s.client.AdmissionregistrationV1(), s.t.Context()
	mutating, err := registration.MutatingWebhookConfigurations().Get(ctx, certsConfiguration, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	validating, err := registration.ValidatingWebhookConfigurations().Get(ctx, certsConfiguration, metav1.GetOptions{})
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

// shake makes a handshake with a replica as an API server with this caBundle would.
func (s *certsSite) shake(replica *certsReplica, bundle []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("the caBundle has no certificate")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: s.names[0], MinVersion: tls.VersionTLS13}}
	connection, err := dialer.DialContext(s.t.Context(), "tcp", replica.address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// shakeAll makes a handshake with every replica for every caBundle.
func (s *certsSite) shakeAll() error {
	bundles, err := s.bundles()
	if err != nil {
		return err
	}
	for _, bundle := range bundles {
		for i, replica := range s.replicas {
			if err := s.shake(replica, bundle); err != nil {
				return fmt.Errorf("replica %d: %w", i, err)
			}
		}
	}
	return nil
}

// review makes the API server call every webhook of both configurations.
func (s *certsSite) review() error {
	_, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "reviewed-"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// agreed waits until every replica is trusted, by whom we read and by the API server.
func (s *certsSite) agreed() {
	s.t.Helper()
	certsEventually(s.t, "handshakes with all replicas", s.shakeAll)
	certsEventually(s.t, "the API server calls all replicas", s.review)
}

// underTraffic makes handshakes and reviews without a break while something is done, and fails for each that fails.
func (s *certsSite) underTraffic(do func()) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	var traffic sync.WaitGroup
	var counts [2]atomic.Int64
	for i, try := range []func() error{s.shakeAll, s.review} {
		traffic.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
				if err := try(); err != nil {
					s.t.Errorf("%s: after %d good ones: %v", time.Now().Format(time.StampMilli), counts[i].Load(), err)
					return
				}
				counts[i].Add(1)
			}
		})
	}
	defer traffic.Wait()
	defer stop()
	do()
	certsEventually(s.t, "enough traffic to show anything", func() error {
		if s.t.Failed() || counts[0].Load() >= 10 && counts[1].Load() >= 10 {
			return nil
		}
		return errors.New("not yet")
	})
	s.t.Logf("%d rounds of handshakes and %d of reviews", counts[0].Load(), counts[1].Load())
}

// secret returns the Secret.
func (s *certsSite) secret() (*corev1.Secret, error) {
	return s.client.CoreV1().Secrets(s.namespace).Get(s.t.Context(), certsSecret, metav1.GetOptions{})
}

// trusted returns the CAs in the Secret.
func (s *certsSite) trusted() ([]*x509.Certificate, error) {
	secret, err := s.secret()
	if err != nil {
		return nil, err
	}
	return parseCertificates(secret.Data["ca.crt"])
}

type forbiddenSpy struct {
	next  http.RoundTripper
	first *atomic.Pointer[string]
}

func (f *forbiddenSpy) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := f.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusForbidden {
		text := request.Method + " " + request.URL.String()
		f.first.CompareAndSwap(nil, &text)
	}
	return response, err
}

// The replica is the Observer of its certificate.

func (*certsReplica) CertificateExpires(time.Time)             {}
func (r *certsReplica) AuthorityExpires(at time.Time)          { r.authorityExpires.Store(at.Unix()) }
func (*certsReplica) CertificateFailed(certs.Operation, error) {}

// certsLog is a log that can be read while it is written.
type certsLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *certsLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *certsLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
