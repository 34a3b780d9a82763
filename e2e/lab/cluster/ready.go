package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

const (
	readyTimeout = 3 * time.Minute
	pollInterval = 100 * time.Millisecond
)

// waitForNodes waits until every node is ready. It sets the pod CIDRs of each Node as soon as the Node exists.
func (c *Cluster) waitForNodes(ctx context.Context) error {
	return c.waitForReady(ctx, c.network.Nodes(), time.Time{})
}

// waitForReady does the same for the given nodes. A Node counts as ready only once its kubelet has reported after
// since, because the API server keeps the last report of a node that was turned off.
func (c *Cluster) waitForReady(ctx context.Context, nodes []*fabric.Node, since time.Time) error {
	assigned := map[string]bool{}
	return c.poll(ctx, func(ctx context.Context) (waitingFor string, err error) {
		var waiting []string
		for _, network := range nodes {
			found, err := c.client.CoreV1().Nodes().Get(ctx, network.Name, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return "", fmt.Errorf("read node %s: %w", network.Name, err)
			}
			if err == nil && !assigned[network.Name] {
				if err := c.assignPodCIDRs(ctx, network); err != nil {
					return "", err
				}
				assigned[network.Name] = true
			}
			if err != nil || !isReady(found, since) {
				waiting = append(waiting, network.Name)
			}
		}
		return strings.Join(waiting, ", "), nil
	})
}

// assignPodCIDRs does what kube-controller-manager does with --allocate-node-cidrs, which would choose the ranges
// itself.
func (c *Cluster) assignPodCIDRs(ctx context.Context, network *fabric.Node) error {
	ipv4, ipv6 := network.PodCIDRs()
	patch, err := json.Marshal(map[string]any{
		"spec": map[string]any{"podCIDR": ipv4, "podCIDRs": []netip.Prefix{ipv4, ipv6}},
	})
	if err != nil {
		return fmt.Errorf("encode the pod CIDRs of %s: %w", network.Name, err)
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, network.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("assign pod CIDRs to %s: %w", network.Name, err)
	}
	return nil
}

// isReady reports whether the kubelet of a node has reported after since that the node is ready. The API server stores
// times in whole seconds.
func isReady(node *corev1.Node, since time.Time) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue && condition.LastHeartbeatTime.After(since.Add(-time.Second))
		}
	}
	return false
}

// poll calls check until waitingFor is empty. It fails if a node ends, because that node will never be ready.
func (c *Cluster) poll(ctx context.Context, check func(context.Context) (waitingFor string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		waitingFor, err := check(ctx)
		if err != nil {
			return err
		}
		if waitingFor == "" {
			return nil
		}
		for _, node := range c.nodes {
			select {
			case <-node.exited():
				return node.process.ExitError()
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", waitingFor, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}
