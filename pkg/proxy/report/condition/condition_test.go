package condition

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Other conditions of a Node stay, and an unchanged status is not written again.
func TestOnlyAChangeOfTheStatusIsWritten(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	readyCondition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
	conditionWith := func(status corev1.ConditionStatus) *corev1.NodeCondition {
		return &corev1.NodeCondition{Type: Type, Status: status, Reason: "InOtherWords"}
	}
	for name, test := range map[string]struct {
		before *corev1.NodeCondition
		state  State
		writes bool
	}{
		"a first sync, on a new Node": {nil, Synced, true},
		"a first sync, after a boot":  {conditionWith(corev1.ConditionFalse), Synced, true},
		"a restart":                   {conditionWith(corev1.ConditionTrue), Synced, false},
		"no rules, on a new Node":     {nil, NoRules, true},
		"no rules, after a boot":      {conditionWith(corev1.ConditionTrue), NoRules, true},
		"no rules, already reported":  {conditionWith(corev1.ConditionFalse), NoRules, false},
		"an unknown status":           {conditionWith(corev1.ConditionUnknown), Synced, true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Phase: corev1.NodeRunning, Conditions: []corev1.NodeCondition{readyCondition}}}
			if test.before != nil {
				node.Status.Conditions = append(node.Status.Conditions, *test.before)
			}
			patch, isNeeded, err := patchOf(node, test.state, now)
			if err != nil || isNeeded != test.writes {
				t.Fatalf("needed: %v, want %v; %v", isNeeded, test.writes, err)
			}
			if !isNeeded {
				return
			}
			after := patched(t, node, patch)
			got := after.Status.Conditions
			if len(got) != 2 || got[0] != readyCondition && got[1] != readyCondition || after.Status.Phase != corev1.NodeRunning {
				t.Fatalf("conditions %+v of %+v", got, after.Status)
			}
			for _, c := range got {
				if c.Type == Type && (c.Status != test.state.Status || c.Reason != test.state.Reason || !c.LastTransitionTime.Time.Equal(now)) {
					t.Errorf("got %+v, want %+v since %s", c, test.state, now)
				}
			}
		})
	}
}

// patched applies a patch to a Node as an API server does.
func patched(t *testing.T, node *corev1.Node, patch []byte) *corev1.Node {
	t.Helper()
	before, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	text, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var after corev1.Node
	if err := json.Unmarshal(text, &after); err != nil {
		t.Fatal(err)
	}
	return &after
}
