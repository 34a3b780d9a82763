package installation_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// timeout is timeoutSeconds in the manifests.
const timeout = 2 * time.Second

// outages are the ways in which no replica responds. Each begins with a replica that works, while kubelet reports no
// change.
var outages = map[string]func(t *testing.T, in *installation){
	"the processes were killed": func(_ *testing.T, in *installation) {
		for _, r := range in.running() {
			r.kill()
		}
	},
	// An API server keeps using a connection while it is open.
	"there are no endpoints": func(t *testing.T, in *installation) {
		must.Succeed(t, in.putSlice(t.Context(), nil))
		for _, r := range in.running() {
			r.kill()
		}
	},
	"the processes hang": func(t *testing.T, in *installation) {
		for _, r := range in.running() {
			must.Succeed(t, r.Signal(syscall.SIGSTOP))
		}
	},
}

// startOutage starts an outage, and waits until the API server notices it.
func (in *installation) startOutage(t *testing.T, begin func(t *testing.T, in *installation)) {
	t.Helper()
	in.pause()
	begin(t, in)
	wait.Success(t, "the API server notices the outage", func() error {
		denies, defaults, err := in.checkReviews(t.Context())
		if err == nil && (denies || defaults) {
			err = errors.New("a replica still responds")
		}
		if apierrors.IsInternalError(err) { // with the overlay enforce
			return nil
		}
		return err
	})
}

// TestRequestsDoNotWaitLongForAWebhookThatIsAway covers failurePolicy Ignore, as shipped.
func TestRequestsDoNotWaitLongForAWebhookThatIsAway(t *testing.T) {
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			in := install(t, manifests, 1)
			in.startOutage(t, begin)
			services := in.Admin.CoreV1().Services(probedNamespace)
			hangs := name == "the processes hang"
			for name, annotations := range map[string]map[string]string{
				"plain": nil, "right": {keysAnnotation: "*"}, "wrong": {keysAnnotation: "a b"},
			} {
				begin := time.Now()
				created, err := services.Create(t.Context(), serviceOf(name, annotations), metav1.CreateOptions{})
				took := time.Since(begin)
				must.Succeed(t, err)
				must.Succeed(t, services.Delete(t.Context(), created.Name, metav1.DeleteOptions{}))
				t.Logf("a create of a %s Service took %s", name, took)
				// Each request calls one webhook. The time that the machine itself needs is added.
				if hangs && took < timeout/2 || took > timeout+5*time.Second {
					t.Errorf("a create of a %s Service took %s; the webhook's timeout is %s", name, took, timeout)
				}
			}
		})
	}
}

// TestWhatIsCheckedIsRejectedWhileNoReplicaRespondsIfEnforced covers the overlay enforce. Other requests are not
// affected.
func TestWhatIsCheckedIsRejectedWhileNoReplicaRespondsIfEnforced(t *testing.T) {
	in := install(t, enforce, 1)
	ctx, services := t.Context(), in.Admin.CoreV1().Services(probedNamespace)
	_, err := services.Create(ctx, serviceOf("kept", map[string]string{keysAnnotation: "*"}), metav1.CreateOptions{})
	must.Succeed(t, err)
	in.startOutage(t, outages["the processes were killed"])

	optOut := []byte(`{"metadata": {"labels": {"vicinity.dev/admission": "disabled"}}, "spec": {"sessionAffinity": "ClientIP"}}`)
	_, err = services.Patch(ctx, "kept", types.MergePatchType, optOut, metav1.PatchOptions{})
	must.Succeed(t, err)
	must.Succeed(t, services.Delete(ctx, "kept", metav1.DeleteOptions{}))

	_, err = services.Create(ctx, serviceOf("right", map[string]string{keysAnnotation: "*"}), metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "validate.services.vicinity.dev") {
		t.Errorf("a Service with keys: %v; want an error that names the webhook", err)
	}
	_, err = in.Admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "unchecked", Annotations: map[string]string{"vicinity.dev/default-topology-mode": "Auto"},
	}}, metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "validate.namespaces.vicinity.dev") {
		t.Errorf("a Namespace with a default: %v; want an error that names the webhook", err)
	}

	plain, err := services.Create(ctx, serviceOf("plain", nil), metav1.CreateOptions{})
	must.Succeed(t, err)
	if plain.Annotations[modeAnnotation] != "" {
		t.Errorf("got the annotations %v, want no default", plain.Annotations)
	}
	plain.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	_, err = services.Update(ctx, plain, metav1.UpdateOptions{})
	must.Succeed(t, err)
	must.Succeed(t, services.Delete(ctx, "plain", metav1.DeleteOptions{}))
	_, err = in.Admin.CoreV1().Services("kube-system").Create(ctx, serviceOf("right", map[string]string{keysAnnotation: "*"}),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must.Succeed(t, err)
	must.Succeed(t, in.putSlice(ctx, []string{"10.244.1.250"}))
	_, err = in.Admin.CoreV1().ConfigMaps(probedNamespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must.Succeed(t, err)
	// The webhook itself can be repaired.
	in.Kubectl(in.t, "apply", "-k", enforce)

	in.Kubectl(in.t, emergencyCommand(t)...)
	in.waitForNoReviews()
	_, err = services.Create(ctx, serviceOf("right", map[string]string{keysAnnotation: "*"}), metav1.CreateOptions{})
	must.Succeed(t, err)
	must.Succeed(t, services.Delete(ctx, "right", metav1.DeleteOptions{}))
}

// emergencyCommand returns the command that the README has for emergencies.
func emergencyCommand(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile(manifests + "/README.md")
	must.Succeed(t, err)
	for line := range strings.Lines(string(readme)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration ") {
			return strings.Fields(line)[1:]
		}
	}
	t.Fatal("the README has no command that deletes the webhook configurations")
	return nil
}

func TestAnUninstallationLeavesNothingBehind(t *testing.T) {
	in := install(t, manifests, 1)
	in.pause()
	in.uninstall()
	for _, kinds := range []string{
		"mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings,namespaces",
		"deployments,services,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets",
	} {
		printed := in.Kubectl(in.t, "get", kinds, "--all-namespaces", "-l", "app.kubernetes.io/name="+installedName, "-o", "name")
		if printed != "" {
			t.Errorf("leftover objects:\n%s", printed)
		}
	}
	in.waitForNoReviews()
}

// uninstall deletes the manifests' objects. It stands in for the Namespace controller, for which kubectl waits.
func (in *installation) uninstall() {
	in.t.Helper()
	ctx := in.t.Context()
	in.areRolesRemoved = true
	deleted := make(chan error, 1)
	go func() {
		_, err := in.TryKubectl(ctx, "delete", "-k", manifests)
		deleted <- err
	}()
	secrets := in.Admin.CoreV1().Secrets(installedNamespace)
	wait.Success(in.t, "kubectl has deleted everything", func() error {
		select {
		case err := <-deleted:
			must.Succeed(in.t, err)
			return nil
		default:
		}
		if err := in.finalize(ctx, installedNamespace); err != nil {
			return err
		}
		return errors.Join(secrets.Delete(ctx, installedSecret, metav1.DeleteOptions{}), errors.New("kubectl still waits"))
	})
}
