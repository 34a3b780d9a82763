package apiserver_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/received"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The measured cluster, and twenty minutes of its traffic. A kubelet writes its node's status every five minutes if
// nothing changed (nodeStatusReportFrequency). No client here watches the kubelets' Leases.
const (
	measuredNodes = 1000
	heartbeats    = 4 // per node
	writers       = 16
)

// The documented bounds. The measured values are far better; package apiserver documents them.
const (
	minFullPerOwn      = 300 // this node's heartbeats cost less than 1/300 of all nodes'
	minFullPerMetadata = 2
)

func TestHeartbeatsCostFewBytes(t *testing.T) {
	w := newWriter(t)
	nodes := createMeasuredNodes(w)
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Name
	}
	var local, metadata, full received.Bytes
	ownOnly := follow(t, local.Wrap(admin()), names[0], "").started()
	withRacks := follow(t, metadata.Wrap(admin()), names[0], "racks").started()
	w.service("racks", keyed(rackLabel+", *"), proxyLabel("racks"))
	withRacks.waitUntil("the Service is active", hasService(w.name("racks")))
	withRacks.waitUntil("the labels of this node that are in use", func(state *model.Cluster) bool {
		labels, _ := state.NodeLabels(names[0])
		return labels[rackLabel] != ""
	})
	withRacks.waitUntil("all nodes are known", func(state *model.Cluster) bool {
		for _, name := range names {
			if _, known := state.NodeLabels(name); !known {
				return false
			}
		}
		return true
	})
	beats := followFullNodes(t, full.Wrap(admin()))

	before := [3]int64{local.Load(), metadata.Load(), full.Load()}
	updates := ownOnly.count() + withRacks.count()
	begin := time.Now()
	sendHeartbeats(t, w, nodes)
	wait.Until(t, "all heartbeats arrived", func() bool { return beats.Load() >= measuredNodes*heartbeats })
	duration := time.Since(begin)
	// The last event of both streams, of this node and of the others' metadata, is a label that both followers receive.
	w.label(names[0], zoneLabel, "end")
	w.label(names[1], rackLabel, "end")
	ownOnly.waitUntil("this node's last change", labelsAre(names[0], "kubernetes.io/os=linux", zoneLabel+"=end"))
	withRacks.waitUntil("another node's last change", labelsAre(names[1], rackLabel+"=end"))

	ownBytes, metadataBytes, fullBytes := local.Load()-before[0], metadata.Load()-before[1], full.Load()-before[2]
	t.Logf("%d nodes, %d heartbeats each, sent in %s", measuredNodes, heartbeats, duration.Round(time.Second))
	t.Logf("received: this node only %d bytes, metadata of all nodes %d, full nodes %d (%d a heartbeat)",
		ownBytes, metadataBytes, fullBytes, fullBytes/(measuredNodes*heartbeats))
	if ownBytes*minFullPerOwn > fullBytes {
		t.Errorf("a watch of this node costs %d bytes, want at most 1/%d of the %d bytes of full nodes", ownBytes, minFullPerOwn, fullBytes)
	}
	if metadataBytes*minFullPerMetadata > fullBytes {
		t.Errorf("a watch of metadata costs %d bytes, want at most 1/%d of the %d bytes of full nodes",
			metadataBytes, minFullPerMetadata, fullBytes)
	}
	if ownBytes == 0 || metadataBytes < 100*ownBytes {
		t.Errorf("metadata of %d nodes costs %d bytes and one full node %d, which is implausible", measuredNodes, metadataBytes, ownBytes)
	}
	// The two last labels, delivered to the follower of one node and to the follower of all nodes.
	if got := ownOnly.count() + withRacks.count() - updates; got > 3 {
		t.Errorf("%d updates were delivered, want only those of the 2 labels", got)
	}
}

// followFullNodes watches complete Nodes, as most programs do, and counts heartbeats.
func followFullNodes(t *testing.T, config *rest.Config) *atomic.Int64 {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Nodes().Informer()
	var beats atomic.Int64
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { beats.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.StartWithContext(ctx)
	wait.Until(t, "the full nodes are listed", registration.HasSynced)
	return &beats
}

// createMeasuredNodes creates Nodes of the size in real clusters.
func createMeasuredNodes(w *writer) []*corev1.Node {
	nodes := make([]*corev1.Node, measuredNodes)
	w.t.Cleanup(func() {
		concurrently(context.WithoutCancel(w.t.Context()), w.t, len(nodes), func(ctx context.Context, i int) error {
			if nodes[i] == nil {
				return nil
			}
			return w.client.CoreV1().Nodes().Delete(ctx, nodes[i].Name, metav1.DeleteOptions{})
		})
	})
	concurrently(w.t.Context(), w.t, measuredNodes, func(ctx context.Context, i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-node-%04d", w.namespace, i), Labels: labelsOfNode(i)}}
		created, err := w.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{FieldManager: "kubelet"})
		if err != nil {
			return err
		}
		created.Status = statusOfNode(i)
		nodes[i], err = w.client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: "kubelet"})
		return err
	})
	return nodes
}

// sendHeartbeats sends a heartbeat for every node, which changes the times of its conditions.
func sendHeartbeats(t *testing.T, w *writer, nodes []*corev1.Node) {
	t.Helper()
	start := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for beat := range heartbeats {
		conditions := conditionsOfNode(metav1.NewTime(start.Add(time.Duration(beat+1) * 5 * time.Minute)))
		concurrently(t.Context(), t, len(nodes), func(ctx context.Context, i int) (err error) {
			nodes[i].Status.Conditions = conditions
			nodes[i], err = w.client.CoreV1().Nodes().UpdateStatus(ctx, nodes[i], metav1.UpdateOptions{FieldManager: "kubelet"})
			return err
		})
	}
}

// concurrently calls do for each number below count, several at a time.
func concurrently(ctx context.Context, t *testing.T, count int, do func(ctx context.Context, i int) error) {
	t.Helper()
	var next atomic.Int64
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func labelsOfNode(i int) map[string]string {
	labels := map[string]string{
		zoneLabel:                              fmt.Sprintf("region-1-%c", 'a'+i%3),
		rackLabel:                              fmt.Sprintf("rack-%d", i/20),
		"topology.kubernetes.io/region":        "region-1",
		"kubernetes.io/hostname":               fmt.Sprintf("node-%04d.compute.internal", i),
		"kubernetes.io/os":                     "linux",
		"kubernetes.io/arch":                   "amd64",
		"node.kubernetes.io/instance-type":     "m7.2xlarge",
		"node.example.com/pool":                "general-purpose",
		"topology.ebs.csi.example.com/zone":    fmt.Sprintf("region-1-%c", 'a'+i%3),
		"topology.k8s.example.com/zone-id":     fmt.Sprintf("r1-az%d", i%3),
		"beta.kubernetes.io/arch":              "amd64",
		"beta.kubernetes.io/os":                "linux",
		"failure-domain.beta.kubernetes.io/zn": "region-1",
	}
	for n := range 12 {
		labels[fmt.Sprintf("feature.node.example.com/cpu-feature-%02d", n)] = "true"
	}
	return labels
}

func conditionsOfNode(at metav1.Time) []corev1.NodeCondition {
	var conditions []corev1.NodeCondition
	for _, condition := range []struct {
		name            corev1.NodeConditionType
		status          corev1.ConditionStatus
		reason, message string
	}{
		{"MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{"DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{"PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
		{"Ready", "True", "KubeletReady", "kubelet is posting ready status"},
	} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: condition.name, Status: condition.status, Reason: condition.reason, Message: condition.message,
			LastHeartbeatTime: at, LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)),
		})
	}
	return conditions
}

func statusOfNode(i int) corev1.NodeStatus {
	capacity := corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("32505856Ki"), "pods": resource.MustParse("110"),
		"ephemeral-storage": resource.MustParse("104845292Ki"),
		"hugepages-1Gi":     resource.MustParse("0"), "hugepages-2Mi": resource.MustParse("0"),
	}
	status := corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: conditionsOfNode(metav1.NewTime(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC))),
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)},
			{Type: corev1.NodeInternalDNS, Address: fmt.Sprintf("node-%04d.compute.internal", i)},
			{Type: corev1.NodeHostName, Address: fmt.Sprintf("node-%04d.compute.internal", i)},
		},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: fmt.Sprintf("%032x", i), SystemUUID: fmt.Sprintf("%032x", i), BootID: fmt.Sprintf("%032x", i),
			KernelVersion: "6.12.40-amd64", OSImage: "Debian GNU/Linux 13 (trixie)", ContainerRuntimeVersion: "containerd://2.1.4",
			KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
		},
	}
	for n := range 50 { // kubelet's nodeStatusMaxImages
		status.Images = append(status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("images.example.com/team-%d/service-%d@sha256:%064x", n%7, n, n),
				fmt.Sprintf("images.example.com/team-%d/service-%d:v1.%d.0", n%7, n, n),
			},
			SizeBytes: int64(n) * 10_000_000,
		})
	}
	return status
}
