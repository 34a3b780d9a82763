package cluster

import (
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
)

// Options are what a lab's owner chooses.
type Options struct {
	// Folder is where the lab is.
	Folder Folder
	// Nodes is how many there are.
	Nodes int
	// Manifests is the folder, or the file of a release, that the proxy is installed from. Empty: it is not installed.
	Manifests string
	// Settings are those of our own document (VicinityProxyConfiguration) that the proxy is installed with.
	Settings map[string]string
	// Proxy is the proxy's program, for the image that it is installed with.
	Proxy string
	// WebhookManifests is the folder or file that the admission webhook is installed from. Empty: it is not installed.
	WebhookManifests string
	// WebhookComponents are folders with components that the webhook is installed with.
	WebhookComponents []string
	// Webhook is the webhook's program, for the image that it is installed with.
	Webhook string
	// Archives are files with more images for all nodes, as `docker save` makes them.
	Archives []string
	// KubeProxy also runs Kubernetes' own service proxy on every node.
	KubeProxy bool
	// NodeDNS runs a DNS cache on every node, which pods ask. It asks the node's proxy first, which then answers DNS.
	NodeDNS bool
	// Localhost has the service proxy serve node ports on loopback, too.
	Localhost bool
}

// served says whether a proxy serves Services. Cluster DNS needs one.
func (o Options) served() bool { return o.Manifests != "" || o.KubeProxy }

// Config is everything that a cluster is made of.
type Config struct {
	Options
	// Programs have all modules.
	Programs binaries.Programs
	// Groups is what the lab's cgroups are called. No two labs on a machine may share it.
	Groups string
	// Step reports what was done, in the past tense.
	Step func(format string, args ...any)
}

// The images that nodes have. Pods must not ask for them to be pulled.
const (
	pauseImage   = "vicinity.dev/lab-pause:lab" // with a domain, so that containerd completes nothing
	corednsImage = "vicinity-lab-coredns:lab"
	probeImage   = "vicinity-probe:lab"
	proxyName    = "vicinity-proxy"
	webhookName  = "vicinity-webhook"
	ownTag       = "lab" // of both

	kubeProxyImage = "vicinity-lab-kube-proxy:lab"
	nodeDNSImage   = "vicinity-lab-node-dns:lab"
)
