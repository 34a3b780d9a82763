package installation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/e2e/webhook/release"
	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/volume"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The names in the manifests.
const (
	installedNamespace = "vicinity-system"
	installedName      = "vicinity-webhook"
	installedSecret    = "vicinity-webhook-tls"
	configVolume       = "config"
	accountUser        = "system:serviceaccount:" + installedNamespace + ":" + installedName
)

// installation is the webhook as in the manifests, with some replicas.
type installation struct {
	*testbed
	t        *testing.T // a subtest replaces it
	dir      string     // for the volumes; it outlives the replicas
	template podTemplate
	// audited is the length of the audit log before the installation. Later requests are checked, unless the roles were
	// removed.
	audited         int
	areRolesRemoved bool

	mutex    sync.Mutex
	replicas []*replica
	written  []string // the addresses in the EndpointSlice
	pause    func()   // stops kubelet until it is resumed
}

// install applies the manifests in a folder and starts replicas. It returns when all of them are ready and the API
// server calls them.
func install(t *testing.T, folder string, replicas int) *installation {
	t.Helper()
	in := apply(t, folder)
	in.start(replicas)
	return in
}

// start starts replicas, and returns when all of them are ready and the API server calls them.
func (in *installation) start(replicas int) {
	in.t.Helper()
	for range replicas {
		in.startReplica()
	}
	in.waitReady()
	in.waitForReviews()
}

// apply applies the manifests in a folder, and starts kubelet, but no replica.
func apply(t *testing.T, folder string) *installation {
	t.Helper()
	in := &installation{testbed: shared, t: t, dir: t.TempDir()}
	in.createProbedNamespace()
	before, err := in.Audited()
	must.Succeed(t, err)
	in.audited = len(before)
	t.Cleanup(in.end)
	in.Kubectl(in.t, "apply", "-k", folder)
	in.prepare()
	in.resumeKubelet()
	return in
}

// prepare does what a cluster does before a pod starts: it reads the Deployment, mounts the ConfigMap and creates the
// token.
func (in *installation) prepare() {
	in.t.Helper()
	deployment, err := in.Admin.AppsV1().Deployments(installedNamespace).Get(in.t.Context(), installedName, metav1.GetOptions{})
	must.Succeed(in.t, err)
	in.template = podTemplate{deployment: deployment, volumes: map[string]*volume.Volume{}}
	for _, mounted := range deployment.Spec.Template.Spec.Volumes {
		in.template.volumes[mounted.Name] = &volume.Volume{Dir: filepath.Join(in.dir, mounted.Name)}
	}
	checkPorts(in.t, deployment)
	config, err := in.Admin.CoreV1().ConfigMaps(installedNamespace).Get(in.t.Context(), installedName, metav1.GetOptions{})
	must.Succeed(in.t, err)
	in.template.volumes[configVolume].Write(in.t, filesOf(config))
	in.template.kubeconfig = site.Kubeconfig(in.t, in.Account(in.t, installedNamespace, installedName))
	in.waitForPermission()
}

// checkPorts compares the ports that the tests use with those of the Deployment.
func checkPorts(t *testing.T, deployment *appsv1.Deployment) {
	t.Helper()
	want := map[string]int32{"webhook": webhookPort, "health": healthPort, "metrics": metricsPort}
	for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
		if want[port.Name] != port.ContainerPort {
			t.Fatalf("the Deployment's port %s is %d, want %d", port.Name, port.ContainerPort, want[port.Name])
		}
	}
}

// waitForPermission waits until the API server applies the new roles, which takes less time than the start of a pod in
// a cluster.
func (in *installation) waitForPermission() {
	in.t.Helper()
	client, err := kubernetes.NewForConfig(in.Account(in.t, installedNamespace, installedName))
	must.Succeed(in.t, err)
	awaited := []authorizationv1.ResourceAttributes{
		{Verb: "list", Resource: "nodes"},
		{
			Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Name: v1alpha1.DemandLeaseName, Namespace: installedNamespace,
		},
	}
	if !in.servesFiles() {
		awaited = append(awaited, authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets", Namespace: installedNamespace})
	}
	for _, attributes := range awaited {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
		wait.Success(in.t, "permission to "+attributes.Verb+" "+attributes.Resource, func() error {
			response, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(in.t.Context(), review, metav1.CreateOptions{})
			if err == nil && !response.Status.Allowed {
				err = errors.New("not allowed yet")
			}
			return err
		})
	}
}

// servesFiles reports whether another program issues the certificate, according to the Deployment.
func (in *installation) servesFiles() bool {
	return slices.Contains(in.template.deployment.Spec.Template.Spec.Containers[0].Args, "--cert-source=files")
}

// startReplica starts another replica, which is not ready yet.
func (in *installation) startReplica() *replica {
	in.t.Helper()
	in.mutex.Lock()
	defer in.mutex.Unlock()
	r := in.runReplica(in.template)
	in.replicas = append(in.replicas, r)
	return r
}

// running returns the replicas that have not ended.
func (in *installation) running() []*replica {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(in.replicas), (*replica).HasExited)
}

// waitReady waits until every replica is ready, also in the EndpointSlice.
func (in *installation) waitReady() {
	in.t.Helper()
	wait.Success(in.t, "all replicas are ready", func() error {
		in.mutex.Lock()
		defer in.mutex.Unlock()
		for _, r := range in.replicas {
			if r.HasExited() {
				in.t.Fatalf("replica %s exited (%s):\n%s", r.pod.Name, r.State(), r.Log)
			}
			if err := r.checkReady(); err != nil {
				return err
			}
			if !slices.Contains(in.written, r.pod.IPv4.String()) {
				return fmt.Errorf("%s is not in the EndpointSlice", r.pod.IPv4)
			}
		}
		return nil
	})
}

// resumeKubelet starts a goroutine that probes the replicas and writes the EndpointSlice until in.pause is called.
func (in *installation) resumeKubelet() {
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	in.pause = func() {
		cancel()
		loop.Wait()
	}
	loop.Go(func() {
		for ctx.Err() == nil {
			in.probeAll()
			if err := in.writeSlice(ctx); err != nil && ctx.Err() == nil {
				in.t.Errorf("write the EndpointSlice: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(probeInterval):
			}
		}
	})
}

func (in *installation) probeAll() {
	var probes sync.WaitGroup
	for _, r := range in.running() {
		probes.Go(r.probe)
	}
	probes.Wait()
}

// writeSlice stands in for the EndpointSlice controller.
func (in *installation) writeSlice(ctx context.Context) error {
	var ready []string
	for _, r := range in.running() {
		if r.checkReady() == nil {
			ready = append(ready, r.pod.IPv4.String())
		}
	}
	in.mutex.Lock()
	isWritten := in.written != nil && slices.Equal(in.written, ready)
	in.mutex.Unlock()
	if isWritten {
		return nil
	}
	if err := in.putSlice(ctx, ready); err != nil {
		return err
	}
	in.mutex.Lock()
	defer in.mutex.Unlock()
	in.written = append([]string{}, ready...)
	return nil
}

func (in *installation) putSlice(ctx context.Context, addresses []string) error {
	slice := objects.Slice(installedNamespace, installedName+"-test", installedName, addresses...)
	slice.Ports = []discoveryv1.EndpointPort{{Name: new("webhook"), Port: new(int32(webhookPort))}}
	for i := range slice.Endpoints {
		slice.Endpoints[i].Conditions.Ready = new(true)
	}
	slices := in.Admin.DiscoveryV1().EndpointSlices(installedNamespace)
	_, err := slices.Update(ctx, slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
	}
	if err != nil || release.Of(in.t, in.Site).IsAtLeast(release.ReadsEndpointSlices) {
		return err
	}
	return in.putEndpoints(ctx, addresses)
}

// end removes what would disturb the next test, and checks which requests of the webhook were forbidden.
func (in *installation) end() {
	if in.pause != nil {
		in.pause()
	}
	for _, r := range in.replicas {
		r.kill()
		if r.Log.Has("PRIVATE KEY") {
			in.t.Errorf("the log of %s contains a private key", r.pod.Name)
		}
	}
	in.removeConfigurations()
	ctx := context.Background()
	err := in.Admin.CoreV1().Secrets(installedNamespace).Delete(ctx, installedSecret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		in.t.Error(err)
	}
	if err := in.putSlice(ctx, nil); err != nil && !apierrors.IsNotFound(err) {
		in.t.Error(err)
	}
	in.checkForbidden()
}

// removeConfigurations deletes the configurations, and waits until the API server calls no webhook.
func (in *installation) removeConfigurations() {
	in.t.Helper()
	ctx := context.Background()
	registration := in.Admin.AdmissionregistrationV1()
	err1 := registration.MutatingWebhookConfigurations().Delete(ctx, installedName, metav1.DeleteOptions{})
	err2 := registration.ValidatingWebhookConfigurations().Delete(ctx, installedName, metav1.DeleteOptions{})
	for _, err := range []error{err1, err2} {
		if err != nil && !apierrors.IsNotFound(err) {
			in.t.Error(err)
		}
	}
	in.waitForNoReviews()
}

// configure changes the text in the ConfigMap, mounts it, and waits until every replica has loaded it.
func (in *installation) configure(text string) {
	in.t.Helper()
	before := in.loadTimes()
	in.mount(text)
	wait.Success(in.t, "the configuration is active", func() error {
		if now := in.loadTimes(); slices.ContainsFunc(now, func(loaded float64) bool { return slices.Contains(before, loaded) }) {
			return errors.New("the previous configuration is still active")
		}
		return nil
	})
}

// mount changes the ConfigMap, and the files that kubelet keeps for it.
func (in *installation) mount(text string) {
	in.t.Helper()
	configs := in.Admin.CoreV1().ConfigMaps(installedNamespace)
	config, err := configs.Get(in.t.Context(), installedName, metav1.GetOptions{})
	must.Succeed(in.t, err)
	config.Data = map[string]string{"config.yaml": text}
	config, err = configs.Update(in.t.Context(), config, metav1.UpdateOptions{})
	must.Succeed(in.t, err)
	in.template.volumes[configVolume].Write(in.t, filesOf(config))
}

// loadTimes returns the times at which the replicas last loaded a configuration.
func (in *installation) loadTimes() []float64 {
	in.t.Helper()
	var times []float64
	for _, r := range in.running() {
		loaded, err := r.metric("vicinity_webhook_configuration_last_success_timestamp_seconds")
		must.Succeed(in.t, err)
		times = append(times, loaded)
	}
	return times
}

// reviews returns the number of reviews of a path by all running replicas.
func (in *installation) reviews(path string) float64 {
	in.t.Helper()
	var sum float64
	for _, r := range in.running() {
		for _, outcome := range []string{"allowed", "denied", "error"} {
			count, err := r.metric("vicinity_webhook_review_duration_seconds_count",
				fmt.Sprintf("outcome=%q", outcome), fmt.Sprintf("path=%q", path))
			must.Succeed(in.t, err)
			sum += count
		}
	}
	return sum
}

// probedNamespace is for requests that show whether the webhook is called. It has a default that needs no zones.
const probedNamespace = "probed"

func (in *installation) createProbedNamespace() {
	in.t.Helper()
	in.createNamespace(probedNamespace, nil, map[string]string{"vicinity.dev/default-topology-mode": "Disabled"})
}

// createNamespace creates a Namespace unless it exists.
func (in *installation) createNamespace(name string, labels, annotations map[string]string) {
	in.t.Helper()
	object := objects.Namespace(name, labels, annotations)
	_, err := in.Admin.CoreV1().Namespaces().Create(in.t.Context(), object, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must.Succeed(in.t, err)
	}
}

// checkReviews reports whether an invalid object is denied (denies), and whether a default is applied (defaults).
func (in *installation) checkReviews(ctx context.Context) (denies, defaults bool, err error) {
	services := in.Admin.CoreV1().Services(probedNamespace)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err = services.Create(ctx, serviceOf("wrong", map[string]string{keysAnnotation: "a b"}), dryRun)
	denies = apierrors.IsInvalid(err)
	if err != nil && !denies {
		return denies, false, err
	}
	created, err := services.Create(ctx, serviceOf("plain", nil), dryRun)
	if err != nil {
		return denies, false, err
	}
	return denies, created.Annotations[modeAnnotation] == "Disabled", nil
}

// waitForReviews waits until the API server has the configurations and the webhook's endpoints.
func (in *installation) waitForReviews() {
	in.t.Helper()
	wait.Success(in.t, "both webhooks are called", func() error {
		denies, defaults, err := in.checkReviews(in.t.Context())
		if err == nil && (!denies || !defaults) {
			err = fmt.Errorf("denies %v, applies defaults %v", denies, defaults)
		}
		return err
	})
}

func (in *installation) waitForNoReviews() {
	in.t.Helper()
	wait.Success(in.t, "no webhook is called", func() error {
		denies, defaults, err := in.checkReviews(context.Background())
		if err == nil && (denies || defaults) {
			err = fmt.Errorf("denies %v, applies defaults %v", denies, defaults)
		}
		return err
	})
}

// writeFile writes a file for kubectl.
func (in *installation) writeFile(name, text string) string {
	in.t.Helper()
	path := filepath.Join(in.t.TempDir(), name)
	must.Succeed(in.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// finalize does the last step of the Namespace controller.
func (tb *testbed) finalize(ctx context.Context, name string) error {
	namespace, err := tb.Admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if namespace.DeletionTimestamp == nil {
		return fmt.Errorf("Namespace %s is not being deleted", name)
	}
	namespace.Spec.Finalizers = nil
	_, err = tb.Admin.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	return err
}
