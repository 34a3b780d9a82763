package topology_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// BenchmarkNodesInFull: how many bytes the API server sends of a Node in full, as a publisher with evacuations reads it, and of its
// metadata alone. Of both the publisher keeps the same: name, version and labels.
func BenchmarkNodesInFull(b *testing.B) {
	install(b)
	const nodes = 50
	for i := range nodes {
		node := nodeOf(fmt.Sprintf("node-%04d", i), "zone-a", map[string]string{rack: "rack-1", "kubernetes.io/hostname": fmt.Sprint("node-", i)})
		created, err := api.Admin.CoreV1().Nodes().Create(b.Context(), node, metav1.CreateOptions{})
		must.Succeed(b, err)
		created.Status = statusOfKubelet(i)
		_, err = api.Admin.CoreV1().Nodes().UpdateStatus(b.Context(), created, metav1.UpdateOptions{})
		must.Succeed(b, err)
	}
	for b.Loop() {
		for what, accept := range map[string]string{
			"full-B/node":     "application/vnd.kubernetes.protobuf",
			"metadata-B/node": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		} {
			body, err := api.Admin.CoreV1().RESTClient().Get().Resource("nodes").SetHeader("Accept", accept).DoRaw(b.Context())
			must.Succeed(b, err)
			b.ReportMetric(float64(len(body))/nodes, what)
		}
	}
}

// statusOfKubelet is what a kubelet says with its usual limit of 50 images, and 110 pods.
func statusOfKubelet(i int) corev1.NodeStatus {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("65536Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	status := corev1.NodeStatus{
		Capacity: amounts, Allocatable: amounts,
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)}},
		NodeInfo: corev1.NodeSystemInfo{
			KernelVersion: "6.18.0", OSImage: "Debian GNU/Linux 13 (trixie)", ContainerRuntimeVersion: "containerd://2.2.0",
			KubeletVersion: "v1.37.2", OperatingSystem: "linux", Architecture: "amd64", MachineID: strings.Repeat("0", 32),
			SystemUUID: strings.Repeat("0", 36), BootID: strings.Repeat("0", 36),
		},
	}
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady,
	} {
		status.Conditions = append(status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available",
		})
	}
	for k := range 50 {
		name := fmt.Sprintf("registry.example.com/team-%d/service-%d", k%7, k)
		status.Images = append(status.Images, corev1.ContainerImage{
			Names: []string{name + "@sha256:" + strings.Repeat("0", 64), name + ":v1.2.3"}, SizeBytes: 100_000_000,
		})
	}
	return status
}
