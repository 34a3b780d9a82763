package nodecondition_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	ownConditionTrue  = `{"type": "vicinity.dev/ServicesReady", "status": "True", "reason": "Synced"}`
	ownConditionFalse = `{"type": "vicinity.dev/ServicesReady", "status": "False", "reason": "NoRules"}`
)

// outcome is the API server's reaction to a patch.
type outcome string

const (
	applied outcome = "applied"
	ignored outcome = "accepted without effect"
	denied  outcome = "denied"
)

// TestTheRightIsBoundToOneConditionOfOneNode tries what is possible with a stolen token of a proxy.
func TestTheRightIsBoundToOneConditionOfOneNode(t *testing.T) {
	api := site.New(t, site.Config{})
	apply(t, api)
	for _, name := range []string{"node-a", "node-b"} {
		node := objects.Node(name, map[string]string{"zone": "a"})
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		node.Status.Capacity = corev1.ResourceList{}
		api.Create(t, node)
	}
	tokens := map[string]*rest.Config{"node-a": configOnNode(t, api, "node-a"), "no node": api.Account(t, namespace, account)}
	try := func(token, node, patch string) (outcome, error) { return tryPatch(t, api, tokens[token], node, patch) }
	wait.Until(t, "the policy is active", func() bool {
		got, _ := try("no node", "node-b", `{"status": {"conditions": [`+ownConditionTrue+`]}}`)
		return got == denied
	})
	for _, test := range []struct {
		name, token, node, patch string
		want                     outcome
	}{
		{"its own condition", "node-a", "node-a", `{"status": {"conditions": [` + ownConditionTrue + `]}}`, applied},
		{"its own condition again, with another status", "node-a", "node-a", `{"status": {"conditions": [` + ownConditionFalse + `]}}`, applied},
		{"its own condition, removed", "node-a", "node-a",
			`{"status": {"conditions": [{"type": "vicinity.dev/ServicesReady", "$patch": "delete"}]}}`, applied},
		{"its own condition, once more", "node-a", "node-a", `{"status": {"conditions": [` + ownConditionTrue + `]}}`, applied},
		{"another node's", "node-a", "node-b", `{"status": {"conditions": [` + ownConditionFalse + `]}}`, denied},
		{"with a token that is not bound to a pod", "no node", "node-a", `{"status": {"conditions": [` + ownConditionFalse + `]}}`, denied},
		{"another condition", "node-a", "node-a", `{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`, denied},
		{"a new condition", "node-a", "node-a", `{"status": {"conditions": [{"type": "example.com/X", "status": "True"}]}}`, denied},
		{"a condition whose type has the same prefix", "node-a", "node-a",
			`{"status": {"conditions": [{"type": "vicinity.dev/ServicesReady2", "status": "True"}]}}`, denied},
		{"another condition, removed", "node-a", "node-a",
			`{"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}`, denied},
		{"all conditions, removed", "node-a", "node-a", `{"status": {"conditions": null}}`, denied},
		{"its own condition and another", "node-a", "node-a",
			`{"status": {"conditions": [` + ownConditionFalse + `, {"type": "Ready", "status": "False"}]}}`, denied},
		{"a new field of the status", "node-a", "node-a", `{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}`, denied},
		{"a field of a field", "node-a", "node-a", `{"status": {"nodeInfo": {"bootID": "other"}}}`, denied},
		{"a resource", "node-a", "node-a", `{"status": {"capacity": {"example.com/gpu": "8"}}}`, denied},
		{"the whole status", "node-a", "node-a", `{"status": null}`, denied},
		{"a label", "node-a", "node-a", `{"metadata": {"labels": {"zone": "b"}}}`, denied},
		{"an annotation", "node-a", "node-a", `{"metadata": {"annotations": {"example.com/a": "b"}}}`, denied},
		{"a finalizer", "node-a", "node-a", `{"metadata": {"finalizers": ["example.com/keep"]}}`, denied},
		{"a taint", "node-a", "node-a", `{"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}`, ignored},
		{"cordoning", "node-a", "node-a", `{"spec": {"unschedulable": true}}`, ignored},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, err := try(test.token, test.node, test.patch); got != test.want {
				t.Errorf("outcome %q, want %q: %v", got, test.want, err)
			}
		})
	}
	t.Run("the policy does not restrict other users", func(t *testing.T) {
		got, err := tryPatch(t, api, api.AdminConfig(), "node-b", `{"status": {"conditions": [`+ownConditionTrue+
			`, {"type": "Ready", "status": "False"}]}}`)
		if got != applied {
			t.Errorf("outcome of an administrator's patch: %q, want %q: %v", got, applied, err)
		}
	})
}

// tryPatch tries a patch of a Node's status, and checks its effect on the Node.
func tryPatch(t *testing.T, api *site.Site, config *rest.Config, name, patch string) (outcome, error) {
	t.Helper()
	before := nodeOf(t, api, name)
	client, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	_, err = client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	after := nodeOf(t, api, name)
	before.ManagedFields, after.ManagedFields = nil, nil
	before.ResourceVersion, after.ResourceVersion = "", ""
	isUnchanged := cmp.Equal(before, after)
	switch {
	case apierrors.IsForbidden(err) && isUnchanged:
		return denied, err
	case err == nil && isUnchanged:
		return ignored, nil
	case err == nil:
		return applied, nil
	}
	return outcome("something else"), err
}

func nodeOf(t *testing.T, api *site.Site, name string) *corev1.Node {
	t.Helper()
	node, err := api.Admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	must.Succeed(t, err)
	return node
}
