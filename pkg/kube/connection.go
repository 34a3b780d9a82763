package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// protobuf is a third of the size of JSON, and quicker to read.
const protobuf = "application/vnd.kubernetes.protobuf"

// Connection says how the API server is reached, as kube-proxy's clientConnection and --master do. The zero value is
// that of a pod: the address and the token that its ServiceAccount gives it.
type Connection struct {
	// Kubeconfig is a file with the address and the credentials.
	Kubeconfig string
	// Server is the API server's address, and overrides that of the kubeconfig.
	Server string
	// AsKubectl: without a Kubeconfig the user's is taken, as kubectl does: $KUBECONFIG, else ~/.kube/config, else that of
	// the pod. Context is the one to use in it; empty: the current one.
	AsKubectl bool
	Context   string
	// QPS and Burst bound the requests of each client; zero means client-go's own bounds. Watches are one request each.
	QPS   float32
	Burst int
	// ContentType and AcceptContentTypes are how objects are sent and received; empty means protobuf.
	ContentType, AcceptContentTypes string
	// Timeout bounds each request, to the end of its answer; zero means no bound, as watches need it.
	Timeout time.Duration
	// UserAgent is what the API server's logs call us; empty means the program's name and version.
	UserAgent string
}

// Config returns the configuration for clients. An error says which setting to look at.
func (c Connection) Config() (*rest.Config, error) {
	config, err := c.address()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.Timeout = c.QPS, c.Burst, c.Timeout
	config.ContentType, config.AcceptContentTypes = c.ContentType, c.AcceptContentTypes
	if config.ContentType == "" {
		config.ContentType = protobuf
	}
	if config.AcceptContentTypes == "" {
		config.AcceptContentTypes = protobuf + ",application/json"
	}
	if c.UserAgent != "" {
		config.UserAgent = c.UserAgent
	}
	return config, nil
}

// address finds out where the API server is, and as which user we ask.
func (c Connection) address() (*rest.Config, error) {
	if c.AsKubectl {
		return c.asKubectl()
	}
	if c.Kubeconfig == "" && c.Server == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no cluster is named, and this is no pod: give a kubeconfig")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the credentials of this pod's ServiceAccount: %w; give a kubeconfig instead", err)
		}
		return config, nil
	}
	config, err := c.loadKubeconfig()
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %q: %w", c.Kubeconfig, err)
	}
	return config, nil
}

// asKubectl finds the cluster as kubectl does.
func (c Connection) asKubectl() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: c.Server}, CurrentContext: c.Context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is named: give a kubeconfig, set KUBECONFIG, or write ~/.kube/config")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return config, nil
}

// loadKubeconfig does not turn to the pod's ServiceAccount when the file is empty, as client-go's deferred loading
// would: a file that is being written is empty for a moment.
func (c Connection) loadKubeconfig() (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}
	loaded, err := rules.Load()
	if err != nil {
		return nil, err
	}
	overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: c.Server}}
	return clientcmd.NewNonInteractiveClientConfig(*loaded, loaded.CurrentContext, overrides, rules).ClientConfig()
}

// LogTo sends what client-go has to say to a log. It concerns the whole process: a program calls it once, at its
// start.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }
