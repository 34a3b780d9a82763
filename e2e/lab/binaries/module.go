package binaries

import (
	"fmt"
	"strings"
)

// Module is a folder in e2e/lab/build: a Go module that is built as a whole.
type Module struct {
	name string
	// upstream is the upstream module that the programs come from. Its version is printed, and if stamp is set, linked
	// into the programs.
	upstream string
	// packages are the packages to build: those of dependencies, or the module's own program (".").
	packages []string
	// test is a package whose tests are also built, into a program with this package's name and the suffix ".test".
	test string
	// program is the name of the only program, if the last element of its package's path is not a suitable one.
	program string
	// library is the C library that a program needs in addition to libc. It is linked statically, because nodes have no
	// shared libraries.
	library *library
	tags    string
	// stamp returns the linker flags that set the programs' version.
	stamp func(version string) []string
	// timeout is how long a first build takes on two cores.
	timeout string
}

// library is a C library: its name, one of its headers, and the Debian package that has both.
type library struct{ name, header, debian string }

// The modules of the lab.
var (
	Kubernetes = Module{
		name:     "kubernetes",
		upstream: "k8s.io/kubernetes",
		packages: []string{
			"k8s.io/kubernetes/cmd/kube-apiserver",
			"k8s.io/kubernetes/cmd/kube-controller-manager",
			"k8s.io/kubernetes/cmd/kube-proxy",
			"k8s.io/kubernetes/cmd/kube-scheduler",
			"k8s.io/kubernetes/cmd/kubectl",
			"k8s.io/kubernetes/cmd/kubelet",
		},
		stamp:   stampKubernetes,
		timeout: "8 minutes",
	}
	Etcd = Module{
		name:     "etcd",
		upstream: "go.etcd.io/etcd/server/v3",
		packages: []string{"go.etcd.io/etcd/server/v3"},
		program:  "etcd",
		timeout:  "1 minute",
	}
	Containerd = Module{
		name:     "containerd",
		upstream: "github.com/containerd/containerd/v2",
		packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containerd/containerd/v2/cmd/ctr",
		},
		stamp: func(version string) []string {
			return []string{"github.com/containerd/containerd/v2/version.Version=" + version}
		},
		timeout: "2 minutes",
	}
	// Runc joins namespaces in C, before Go starts threads, and filters system calls with libseccomp.
	Runc = Module{
		name:     "runc",
		upstream: "github.com/opencontainers/runc",
		packages: []string{"github.com/opencontainers/runc"},
		library:  &library{name: "seccomp", header: "seccomp.h", debian: "libseccomp-dev"},
		tags:     "seccomp,netgo,osusergo",
		timeout:  "30 seconds",
	}
	CNI = Module{
		name:     "cni",
		upstream: "github.com/containernetworking/plugins",
		packages: []string{
			"github.com/containernetworking/plugins/plugins/ipam/host-local",
			"github.com/containernetworking/plugins/plugins/main/loopback",
			"github.com/containernetworking/plugins/plugins/main/ptp",
			"github.com/containernetworking/plugins/plugins/meta/portmap",
		},
		timeout: "30 seconds",
	}
	// Flannel is a pod network. One of its backends is written in C.
	Flannel = Module{
		name:     "flannel",
		upstream: "github.com/flannel-io/flannel",
		packages: []string{"github.com/flannel-io/flannel"},
		program:  "flanneld",
		library:  &library{name: "c", header: "stdio.h", debian: "libc6-dev"},
		tags:     "netgo,osusergo",
		stamp: func(version string) []string {
			return []string{"github.com/flannel-io/flannel/pkg/version.Version=" + version}
		},
		timeout: "1 minute",
	}
	// KubeRouter enforces NetworkPolicies. Its other functions are not used.
	KubeRouter = Module{
		name:     "kuberouter",
		upstream: "github.com/cloudnativelabs/kube-router/v2",
		packages: []string{"github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"},
		stamp: func(version string) []string {
			return []string{"github.com/cloudnativelabs/kube-router/v2/pkg/version.Version=" + version}
		},
		timeout: "1 minute",
	}
	// MetalLB announces load balancer addresses on the nodes' link.
	MetalLB = Module{
		name:     "metallb",
		upstream: "go.universe.tf/metallb",
		packages: []string{"go.universe.tf/metallb/speaker"},
		timeout:  "2 minutes",
	}
	// Kubeadm turns kind's nodes into a cluster.
	Kubeadm = Module{
		name:     "kubeadm",
		upstream: "k8s.io/kubernetes",
		packages: []string{"k8s.io/kubernetes/cmd/kubeadm"},
		stamp:    stampKubernetes,
		timeout:  "1 minute",
	}
	// Upstream has Kubernetes' own end-to-end tests, their runner, and the program in most of their images.
	Upstream = Module{
		name:     "upstream",
		upstream: "k8s.io/kubernetes",
		packages: []string{
			"github.com/onsi/ginkgo/v2/ginkgo",
			"k8s.io/kubernetes/test/images/agnhost",
			"k8s.io/kubernetes/test/images/regression-issue-74839",
		},
		test:    "k8s.io/kubernetes/test/e2e",
		stamp:   stampKubernetes,
		timeout: "5 minutes",
	}
	// CoreDNS is our own build of CoreDNS: the upstream program has all plugins.
	CoreDNS = Module{
		name:     "coredns",
		upstream: "github.com/coredns/coredns",
		packages: []string{"."},
		timeout:  "1 minute",
	}
	// NodeDNS is the DNS cache of a node. It is an older CoreDNS, the version that NodeLocal DNSCache uses.
	NodeDNS = Module{
		name:     "nodedns",
		upstream: "github.com/coredns/coredns",
		packages: []string{"."},
		timeout:  "1 minute",
	}
	// Categorize is our own program. It prints which endpoints kube-proxy's own code chooses.
	Categorize = Module{
		name:     "categorize",
		upstream: "k8s.io/kubernetes",
		packages: []string{"."},
		timeout:  "2 minutes",
	}
	// XDS has our own programs: one validates messages with Envoy's own types, and clients connect through xDS with
	// grpc-go.
	XDS = Module{
		name:     "xds",
		upstream: "google.golang.org/grpc",
		packages: []string{"."},
		timeout:  "1 minute",
	}
)

// All are the modules of a whole cluster, without tests. The quick ones are first, so that problems with the machine
// show early.
var All = []Module{Runc, CNI, Etcd, Containerd, NodeDNS, CoreDNS, Kubernetes}

// stampKubernetes sets the version of the programs, as Kubernetes' own build does (hack/lib/version.sh). Without it
// they report v0.0.0, and clients that compare their version with the API server's warn.
func stampKubernetes(version string) []string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	var stamps []string
	for _, pkg := range []string{"k8s.io/client-go/pkg/version", "k8s.io/component-base/version"} {
		stamps = append(stamps,
			fmt.Sprintf("%s.gitVersion=%s", pkg, version),
			fmt.Sprintf("%s.gitMajor=%s", pkg, major),
			fmt.Sprintf("%s.gitMinor=%s", pkg, minor),
			fmt.Sprintf("%s.gitTreeState=archive", pkg),
		)
	}
	return stamps
}

// arguments returns the arguments of `go build`, without the output path.
func (m Module) arguments(version string) []string {
	return append(append([]string{"build"}, m.flags(version)...), m.packages...)
}

// testArguments returns the arguments of `go test`, without the output path.
func (m Module) testArguments(version string) []string {
	return append(append([]string{"test", "-c"}, m.flags(version)...), m.test)
}

func (m Module) flags(version string) []string {
	linker := []string{"-s", "-w"}
	if m.stamp != nil {
		for _, stamp := range m.stamp(version) {
			linker = append(linker, "-X", stamp)
		}
	}
	if m.library != nil {
		linker = append(linker, "-linkmode", "external", "-extldflags", "-static")
	}
	// Builds must not need version control: the version is in go.mod.
	flags := []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", strings.Join(linker, " ")}
	if m.tags != "" {
		flags = append(flags, "-tags", m.tags)
	}
	return flags
}

// environment returns the environment variables that a build adds to ours. A go.work file or GOFLAGS of the calling
// user must not affect the result.
func (m Module) environment() []string {
	cgo := "0"
	if m.library != nil {
		cgo = "1"
	}
	return []string{"CGO_ENABLED=" + cgo, "GOFLAGS=", "GOWORK=off"}
}
