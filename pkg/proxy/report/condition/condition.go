package condition

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Type is the type of the condition.
const Type corev1.NodeConditionType = "vicinity.dev/ServicesReady"

// State is a value of the condition.
type State struct {
	Status          corev1.ConditionStatus
	Reason, Message string
}

var (
	// Synced means that the kernel has had the rules of all Services. They stay there without a proxy.
	Synced = State{corev1.ConditionTrue, "Synced", "The kernel has the rules of the Services"}
	// NoRules means that the node was booted, or that its rules were deleted. It replaces an earlier condition.
	NoRules = State{corev1.ConditionFalse, "NoRules", "The kernel has no rules of the Services yet"}
)

// patchOf returns the strategic merge patch that sets the condition on a Node, and whether one is needed. Only the
// status is compared: a new version of the proxy with other texts writes to no Node.
func patchOf(node *corev1.Node, state State, now time.Time) ([]byte, bool, error) {
	for i := range node.Status.Conditions {
		if current := &node.Status.Conditions[i]; current.Type == Type && current.Status == state.Status {
			return nil, false, nil
		}
	}
	timestamp := metav1.NewTime(now)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: Type, Status: state.Status, Reason: state.Reason, Message: state.Message,
		LastHeartbeatTime: timestamp, LastTransitionTime: timestamp,
	}}}})
	if err != nil {
		return nil, false, fmt.Errorf("encode condition %s: %w", Type, err)
	}
	return patch, true, nil
}
