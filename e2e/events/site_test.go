package events_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

const (
	nodeName  = "node-1"
	namespace = "shop"
	// The proxy's ServiceAccount, as manifests/access.yaml has it.
	accountNamespace, accountName = "kube-system", "vicinity-proxy"
)

// site is a node for a proxy, and a control plane on another machine that writes down who asked what of it.
type site struct {
	t        *testing.T // a subtest puts itself here
	node     *fabric.Node
	outside  *fabric.Host
	programs binaries.Programs
	plane    *controlplane.ControlPlane
	admin    *kubernetes.Clientset
	audit    string // the file of the audit log
	proxy    *fabric.Process
	output   *output // of the proxy
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, audit: filepath.Join(t.TempDir(), "audit.log"), output: &output{}}
	network, err := fabric.New()
	must(t, err)
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Errorf("take the network down: %v", err)
		}
	})
	s.node, err = network.AddNode(nodeName)
	must(t, err)
	s.outside, err = network.AddHost("control-plane", s.node)
	must(t, err)
	s.startControlPlane()
	s.kubectl("apply", "-f", filepath.Join("..", "..", "manifests", "access.yaml"))
	s.createNode()
	_, err = s.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	must(t, err)
	return s
}

func (s *site) startControlPlane() {
	s.t.Helper()
	var err error
	s.programs, err = binaries.Build(s.t.Context(), os.Stderr, binaries.Etcd, binaries.Kubernetes)
	must(s.t, err)
	auditPolicy := filepath.Join(s.t.TempDir(), "audit-policy.yaml")
	must(s.t, os.WriteFile(auditPolicy, []byte(auditOfTheProxy), 0o600))
	s.plane, err = controlplane.Start(s.t.Context(), controlplane.Config{
		Dir: s.t.TempDir(), Programs: s.programs, Place: s.outside, Address: s.outside.IPv4,
		APIServerFlags: []string{"--audit-policy-file=" + auditPolicy, "--audit-log-path=" + s.audit},
	})
	must(s.t, err)
	s.t.Cleanup(s.plane.Stop)
	s.admin, err = kubernetes.NewForConfig(s.plane.AdminConfig())
	must(s.t, err)
}

// kubectl runs kubectl as an administrator on the control plane's machine.
func (s *site) kubectl(arguments ...string) {
	s.t.Helper()
	arguments = append([]string{"--kubeconfig", s.plane.AdminKubeconfig()}, arguments...)
	command := exec.Command(s.programs.Path(binaries.Kubernetes, "kubectl"), arguments...)
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	process, err := s.outside.Start(command)
	must(s.t, err)
	if err := process.Wait(); err != nil {
		s.t.Fatalf("kubectl %v: %v\n%s", arguments, err, &printed)
	}
}

func (s *site) createNode() {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	for _, address := range []string{s.node.IPv4.String(), s.node.IPv6.String()} {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	_, err := s.admin.CoreV1().Nodes().Create(s.t.Context(), node, metav1.CreateOptions{})
	must(s.t, err)
}

// service creates a Service with one port, and whatever else is to be in it.
func (s *site) service(name string, change func(*corev1.Service)) corev1.ObjectReference {
	s.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	change(service)
	service, err := s.admin.CoreV1().Services(namespace).Create(s.t.Context(), service, metav1.CreateOptions{})
	must(s.t, err)
	return corev1.ObjectReference{Kind: "Service", Namespace: namespace, Name: name, UID: service.UID}
}

// slice creates an EndpointSlice with some ports, as somebody may who writes it by hand: its port numbers are checked by nobody.
func (s *site) slice(name string, ports ...int32) corev1.ObjectReference {
	s.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "keyed"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.10"}, NodeName: new(nodeName)}},
	}
	for i, port := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(strings.Repeat("p", i+1)), Port: new(port)})
	}
	slice, err := s.admin.DiscoveryV1().EndpointSlices(namespace).Create(s.t.Context(), slice, metav1.CreateOptions{})
	must(s.t, err)
	return corev1.ObjectReference{Kind: "EndpointSlice", Namespace: namespace, Name: name, UID: slice.UID}
}

// startProxy starts the proxy on the node, as the ServiceAccount that it has in a cluster.
func (s *site) startProxy() {
	s.t.Helper()
	config, err := s.plane.ServiceAccountConfig(s.t.Context(), accountNamespace, accountName)
	must(s.t, err)
	kubeconfig := filepath.Join(s.t.TempDir(), "kubeconfig")
	must(s.t, controlplane.WriteKubeconfig(kubeconfig, config))
	command := exec.Command(buildProxy(s.t), "run", "--kubeconfig", kubeconfig, "--node", nodeName, "--own-tables", "never",
		"--cluster-cidr", fabric.PodsIPv4.String()+","+fabric.PodsIPv6.String())
	command.Stdout, command.Stderr = s.output, s.output
	s.proxy, err = s.node.Start(command)
	must(s.t, err)
	t := s.t
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the proxy said:\n%s", s.output)
		}
	})
}

// buildProxy builds the proxy. It looks at what the proxy is built from, because `go test` repeats an old result as long as everything
// that a test looked at stays the same, and does not know what the compiler reads.
func buildProxy(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"../../cmd", "../../pkg"} {
		must(t, filepath.WalkDir(root, func(_ string, _ fs.DirEntry, err error) error { return err }))
	}
	program := filepath.Join(t.TempDir(), "proxy")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/proxy").CombinedOutput(); err != nil {
		t.Fatalf("build the proxy: %v\n%s", err, output)
	}
	return program
}

// saboteur returns nft under another name: the one that must be told.
func (s *site) saboteur() string {
	s.t.Helper()
	path, err := exec.LookPath("nft")
	must(s.t, err)
	program, err := os.ReadFile(path)
	must(s.t, err)
	copied := filepath.Join(s.t.TempDir(), "saboteur")
	must(s.t, os.WriteFile(copied, program, 0o700))
	return copied
}

// output is what a program prints, read while it runs.
type output struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}
