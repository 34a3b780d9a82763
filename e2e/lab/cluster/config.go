package cluster

import (
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
)

// Options are the settings that the lab's user chooses.
type Options struct {
	// Folder is the folder of the lab.
	Folder Folder
	// Nodes is the number of nodes.
	Nodes int
	// Manifests is the folder, or the file of a release, that the proxy is installed from. If empty, the proxy is not
	// installed.
	Manifests string
	// Settings are fields of VicinityProxyConfiguration to add to the proxy's configuration.
	Settings map[string]string
	// Proxy is the proxy's program, from which its image is built.
	Proxy string
	// WebhookManifests is the folder or file that the admission webhook is installed from. If empty, it is not installed.
	WebhookManifests string
	// WebhookComponents are folders with components to install the webhook with.
	WebhookComponents []string
	// Webhook is the webhook's program, from which its image is built.
	Webhook string
	// Archives are files with more images for all nodes, in the format of `docker save`.
	Archives []string
	// KubeProxy also runs Kubernetes' own service proxy on every node.
	KubeProxy bool
	// NodeDNS runs a DNS cache on every node, which pods query. It queries the node's proxy first, so the proxy's DNS
	// server is enabled.
	NodeDNS bool
	// Localhost makes the service proxy serve node ports on loopback, too.
	Localhost bool
}

// hasServiceProxy reports whether a service proxy is installed. Cluster DNS needs one.
func (o Options) hasServiceProxy() bool { return o.Manifests != "" || o.KubeProxy }

// Config is the complete configuration of a cluster.
type Config struct {
	Options
	// Programs has all modules.
	Programs binaries.Programs
	// Groups is the name of the lab's cgroups. It must be unique on the machine.
	Groups string
	// Step reports a completed step, in the past tense.
	Step func(format string, args ...any)
}

// The images on the nodes, and their names and tag. Pods must not require them to be pulled.
const (
	pauseImage   = "vicinity.dev/lab-pause:lab" // has a domain, so that containerd adds none
	corednsImage = "vicinity-lab-coredns:lab"
	probeImage   = "vicinity-probe:lab"
	proxyName    = "vicinity-proxy"
	webhookName  = "vicinity-webhook"
	imageTag     = "lab" // of the proxy and the webhook

	kubeProxyImage = "vicinity-lab-kube-proxy:lab"
	nodeDNSImage   = "vicinity-lab-node-dns:lab"
)
