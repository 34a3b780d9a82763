package events_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/events"
)

// cluster is an API server for one test.
type cluster struct {
	t          *testing.T
	plane      *controlplane.ControlPlane
	programs   binaries.Programs
	admin      *kubernetes.Clientset
	kubeconfig string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	programs, err := binaries.Build(t.Context(), os.Stderr, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	plane, err := controlplane.Start(t.Context(), controlplane.Config{Dir: t.TempDir(), Programs: programs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	c := &cluster{t: t, plane: plane, programs: programs, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	c.must(controlplane.WriteKubeconfig(c.kubeconfig, plane.AdminConfig()))
	c.admin, err = kubernetes.NewForConfig(plane.AdminConfig())
	c.must(err)
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// teller returns a client that may create Events, and do nothing else.
func (c *cluster) teller() *rest.Config {
	c.t.Helper()
	const name = "teller"
	_, err := c.admin.RbacV1().ClusterRoles().Create(c.t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.admin.RbacV1().ClusterRoleBindings().Create(c.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}, metav1.CreateOptions{})
	c.must(err)
	config, err := c.plane.ClientConfig(name)
	c.must(err)
	return config
}

// create creates what is told about: the Service shop/web, a slice, a ServiceCIDR, and three Nodes.
func (c *cluster) create() (service, slice, cidr events.Reference) {
	c.t.Helper()
	ctx, options := c.t.Context(), metav1.CreateOptions{}
	for _, name := range []string{"shop", "bank"} {
		_, err := c.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, options)
		c.must(err)
	}
	for i := range 3 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i+1)}}
		_, err := c.admin.CoreV1().Nodes().Create(ctx, node, options)
		c.must(err)
	}
	web, err := c.admin.CoreV1().Services("shop").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, options)
	c.must(err)
	web1, err := c.admin.DiscoveryV1().EndpointSlices("shop").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1"},
		AddressType: discoveryv1.AddressTypeIPv4,
	}, options)
	c.must(err)
	all, err := c.admin.NetworkingV1().ServiceCIDRs().Create(ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.112.0.0/16"}},
	}, options)
	c.must(err)
	return events.Reference{Kind: "Service", Namespace: "shop", Name: "web", UID: string(web.UID)},
		events.Reference{Kind: "EndpointSlice", Namespace: "shop", Name: "web-1", UID: string(web1.UID)},
		events.Reference{Kind: "ServiceCIDR", Name: "all", UID: string(all.UID)}
}

// of returns the proxies' Events for which a condition holds.
func (c *cluster) of(holds func(eventsv1.Event) bool) []eventsv1.Event {
	c.t.Helper()
	list, err := c.admin.EventsV1().Events("").List(c.t.Context(), metav1.ListOptions{})
	c.must(err)
	var found []eventsv1.Event
	for _, event := range list.Items {
		if event.ReportingController == "vicinity.dev/proxy" && holds(event) {
			found = append(found, event)
		}
	}
	return found
}

// count returns how many Events there are, by namespace, object and reason.
func (c *cluster) count() map[string]int {
	c.t.Helper()
	counts := map[string]int{}
	for _, event := range c.of(func(eventsv1.Event) bool { return true }) {
		counts[event.Namespace+" "+event.Regarding.Kind+" "+event.Regarding.Name+" "+event.Reason]++
	}
	return counts
}

// kubectl runs kubectl as an administrator and returns what it prints.
func (c *cluster) kubectl(arguments ...string) string {
	c.t.Helper()
	program := c.programs.Path(binaries.Kubernetes, "kubectl")
	arguments = append([]string{"--kubeconfig", c.kubeconfig}, arguments...)
	output, err := exec.CommandContext(c.t.Context(), program, arguments...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("kubectl %v: %v\n%s", arguments, err, output)
	}
	return string(output)
}

func (c *cluster) eventually(what string, differs func() string) {
	c.t.Helper()
	eventually(c.t, what, differs)
}

// eventually waits until nothing differs any more. A busy machine gets all the time that it needs.
func eventually(t *testing.T, what string, differs func() string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		diff := differs()
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes, not yet: %s (-want +got):\n%s", what, diff)
		}
	}
}
