package installation_test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/lab/authority"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestCertificateFilesThatOthersRenewAreServed covers the overlay certificate-files. The test stands in for
// cert-manager: it issues certificates, keeps them in the Secret, and writes their CA into the configurations.
func TestCertificateFilesThatOthersRenewAreServed(t *testing.T) {
	in := apply(t, certificateFiles)
	issuer, err := authority.New("another issuer")
	must.Succeed(t, err)
	first, trusted := serverPair(t, issuer), issuer.Certificate()
	in.storePair(first)
	r := in.startReplica()
	in.waitReady()
	in.trust(trusted)
	in.waitForReviews()
	in.expectServed(r, first)
	in.expectUnchanged(trusted)
	pids := in.pids()

	// From here on, a failed call to the webhook fails the request.
	in.enforceReviews()
	load := in.startLoad(20)
	load.waitForMore(t)
	second := serverPair(t, issuer)
	in.storePair(second)
	in.waitForServed(r, trusted, second)
	load.waitForMore(t)

	failures := in.failedReads(r)
	in.storePair(authority.Pair{Certificate: serverPair(t, issuer).Certificate, Key: second.Key})
	wait.Success(t, "a mismatching pair is counted", func() error {
		if now := in.failedReads(r); now <= failures {
			return fmt.Errorf("%v failures, want more than %v", now, failures)
		}
		return nil
	})
	if log := r.Log.String(); !strings.Contains(log, "private key does not match public key") {
		t.Errorf("the log does not report the mismatch:\n%s", log)
	}
	in.expectServed(r, second)
	must.Succeed(t, r.checkReady())
	// API servers have a client for each caBundle (k8s.io/apiserver/pkg/util/webhook), so this one opens a new connection.
	trusted = slices.Concat(trusted, in.Authority().Certificate())
	in.trust(trusted)
	load.waitForMore(t)

	third := serverPair(t, issuer)
	in.storePair(third)
	in.waitForServed(r, trusted, third)
	load.end(t)
	if now := in.pids(); !slices.Equal(now, pids) {
		t.Errorf("processes %v, want %v as before", now, pids)
	}
	in.expectDenial()
	in.expectUnchanged(trusted)
	in.expectNoRights()
	in.expectNoCertificateRequests()
}

// serverPair issues a certificate for the webhook.
func serverPair(t *testing.T, issuer *authority.Authority) authority.Pair {
	t.Helper()
	pair, err := issuer.Server(installedName, []string{installedName + "." + installedNamespace + ".svc"}, nil)
	must.Succeed(t, err)
	return pair
}

// storePair writes a pair into the Secret as cert-manager does, and mounts it as kubelet does.
func (in *installation) storePair(pair authority.Pair) {
	in.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: installedSecret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key},
	}
	secrets := in.Admin.CoreV1().Secrets(installedNamespace)
	stored, err := secrets.Update(in.t.Context(), secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		stored, err = secrets.Create(in.t.Context(), secret, metav1.CreateOptions{})
	}
	must.Succeed(in.t, err)
	for _, mounted := range in.template.deployment.Spec.Template.Spec.Volumes {
		if mounted.Secret != nil && mounted.Secret.SecretName == stored.Name {
			in.template.volumes[mounted.Name].Write(in.t, stored.Data)
			return
		}
	}
	in.t.Fatalf("no volume of the Deployment is the Secret %s", stored.Name)
}

// trust writes a caBundle into both configurations, as cert-manager's cainjector does.
func (in *installation) trust(bundle []byte) {
	in.t.Helper()
	registration, ctx := in.Admin.AdmissionregistrationV1(), in.t.Context()
	mutating, err := registration.MutatingWebhookConfigurations().Get(ctx, installedName, metav1.GetOptions{})
	must.Succeed(in.t, err)
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = bundle
	}
	_, err = registration.MutatingWebhookConfigurations().Update(ctx, mutating, metav1.UpdateOptions{})
	must.Succeed(in.t, err)
	validating, err := registration.ValidatingWebhookConfigurations().Get(ctx, installedName, metav1.GetOptions{})
	must.Succeed(in.t, err)
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = bundle
	}
	_, err = registration.ValidatingWebhookConfigurations().Update(ctx, validating, metav1.UpdateOptions{})
	must.Succeed(in.t, err)
}

// expectUnchanged fails the test if a caBundle differs from the one that the test wrote.
func (in *installation) expectUnchanged(bundle []byte) {
	in.t.Helper()
	bundles := in.bundles()
	if len(bundles) != 3 {
		in.t.Fatalf("there are %d caBundles, want 3", len(bundles))
	}
	for i, found := range bundles {
		if !bytes.Equal(found, bundle) {
			in.t.Errorf("caBundle %d is\n%s\nwant as written\n%s", i, found, bundle)
		}
	}
}

// enforceReviews changes failurePolicy, which is Ignore in the overlay, so that clients get an error if a call fails.
func (in *installation) enforceReviews() {
	in.t.Helper()
	in.raiseTimeouts()
	in.Kubectl(in.t, "patch", "validatingwebhookconfiguration", installedName, "--type=json", "-p", `[
		{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
		{"op": "replace", "path": "/webhooks/1/failurePolicy", "value": "Fail"}]`)
}

// waitForMore waits until 40 more requests were made.
func (l *load) waitForMore(t *testing.T) {
	t.Helper()
	before := l.made.Load()
	wait.Success(t, "requests continue", func() error {
		if now := l.made.Load(); now < before+40 {
			return fmt.Errorf("%d requests", now-before)
		}
		return nil
	})
}

// isServed makes a handshake, which must succeed, and reports whether the replica serves a pair's certificate.
func (in *installation) isServed(r *replica, bundle []byte, pair authority.Pair) bool {
	in.t.Helper()
	state, err := in.handshake(r, bundle, &tls.Config{MinVersion: tls.VersionTLS13})
	must.Succeed(in.t, err)
	block, _ := pem.Decode(pair.Certificate)
	return bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes)
}

func (in *installation) waitForServed(r *replica, bundle []byte, pair authority.Pair) {
	in.t.Helper()
	wait.Success(in.t, "the new certificate is served", func() error {
		if !in.isServed(r, bundle, pair) {
			return errors.New("the old certificate is still served")
		}
		return nil
	})
}

// expectServed fails the test unless a pair is served and an invalid object is denied.
func (in *installation) expectServed(r *replica, pair authority.Pair) {
	in.t.Helper()
	if !in.isServed(r, in.bundles()[0], pair) {
		in.t.Error("a different certificate is served")
	}
	in.expectDenial()
}

func (in *installation) expectDenial() {
	in.t.Helper()
	invalid := serviceOf("wrong", map[string]string{keysAnnotation: "a b"})
	_, err := in.Admin.CoreV1().Services(probedNamespace).Create(in.t.Context(), invalid, metav1.CreateOptions{})
	if got := denyingRules(err); !slices.Equal(got, []string{"SVC003"}) {
		in.t.Errorf("a Service with a mistake is denied by %v, want SVC003: %v", got, err)
	}
}

// failedReads returns the number of times that the files could not be used.
func (in *installation) failedReads(r *replica) float64 {
	in.t.Helper()
	count, err := r.metric("vicinity_webhook_internal_errors_total", `reason="certificate_read_files"`)
	must.Succeed(in.t, err)
	return count
}

// expectNoRights fails the test if the ServiceAccount has rights that only a webhook with a self-issued certificate
// needs, or may not list Nodes.
func (in *installation) expectNoRights() {
	in.t.Helper()
	if !in.isAllowed(authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"}) {
		in.t.Error("the ServiceAccount may not list Nodes")
	}
	var rights []authorizationv1.ResourceAttributes
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		rights = append(rights, authorizationv1.ResourceAttributes{
			Verb: verb, Resource: "secrets", Name: installedSecret, Namespace: installedNamespace,
		})
		for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
			rights = append(rights, authorizationv1.ResourceAttributes{
				Verb: verb, Group: "admissionregistration.k8s.io", Resource: resource, Name: installedName,
			})
		}
	}
	for _, right := range rights {
		if in.isAllowed(right) {
			in.t.Errorf("the ServiceAccount may %s %s, want no such right", right.Verb, right.Resource)
		}
	}
}

// isAllowed reports whether the ServiceAccount has a right, according to the API server.
func (in *installation) isAllowed(right authorizationv1.ResourceAttributes) bool {
	in.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: accountUser, ResourceAttributes: &right,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + installedNamespace, "system:authenticated"},
	}}
	response, err := in.Admin.AuthorizationV1().SubjectAccessReviews().Create(in.t.Context(), review, metav1.CreateOptions{})
	must.Succeed(in.t, err)
	return response.Status.Allowed
}

// expectNoCertificateRequests fails the test if the webhook requested a Secret or a configuration, whatever the response.
func (in *installation) expectNoCertificateRequests() {
	in.t.Helper()
	all, err := in.Audited()
	must.Succeed(in.t, err)
	sawNodes := false
	for _, line := range all[in.audited:] {
		if line.User.Username != accountUser || line.ObjectRef == nil {
			continue
		}
		switch line.ObjectRef.Resource {
		case "nodes":
			sawNodes = true
		case "secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations":
			in.t.Errorf("request of the webhook: %s %s", line.Verb, line.RequestURI)
		}
	}
	if !sawNodes {
		in.t.Error("the audit log has no request of the webhook for Nodes")
	}
}
