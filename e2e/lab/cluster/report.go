package cluster

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Report writes a table of the nodes of the cluster in a folder.
func Report(ctx context.Context, out io.Writer, folder Folder) error {
	config, err := clientcmd.BuildConfigFromFlags("", folder.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read %s: %w", folder.Kubeconfig(), err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tREADY\tZONE\tRACK\tADDRESSES\tPODS")
	for _, node := range nodes.Items {
		fmt.Fprintf(table, "%s\t%t\t%s\t%s\t%s\t%v\n", node.Name, isReady(&node, time.Time{}), node.Labels[corev1.LabelTopologyZone],
			node.Labels[rackLabel], addresses(node), node.Spec.PodCIDRs)
	}
	return table.Flush()
}

func addresses(node corev1.Node) []string {
	var found []string
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			found = append(found, address.Address)
		}
	}
	return found
}
