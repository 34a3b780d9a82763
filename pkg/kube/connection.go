package kube

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// protobuf is a third of the size of JSON and faster to decode.
const protobuf = "application/vnd.kubernetes.protobuf"

// Connection configures how the API server is reached, like kube-proxy's clientConnection and --master. The zero value
// uses the address and token of the pod's ServiceAccount.
type Connection struct {
	// Kubeconfig is the path of a kubeconfig file with the address and the credentials.
	Kubeconfig string
	// Server is the API server's address. It overrides that of the kubeconfig.
	Server string
	// AsKubectl uses the user's kubeconfig if Kubeconfig is empty, like kubectl: $KUBECONFIG, else ~/.kube/config, else
	// the pod's ServiceAccount. Context is the context in it; empty means the current one.
	AsKubectl bool
	Context   string
	// QPS and Burst limit the requests of each client; zero means client-go's defaults. A watch is one request.
	QPS   float32
	Burst int
	// ContentType and AcceptContentTypes are the formats of sent and received objects; empty means protobuf.
	ContentType, AcceptContentTypes string
	// Timeout limits each request, including its response; zero means no limit, which watches need.
	Timeout time.Duration
	// UserAgent is the name in the API server's logs; empty means the program's name and version.
	UserAgent string
}

// Config returns the configuration for clients. An error names the setting to check.
func (c Connection) Config() (*rest.Config, error) {
	config, err := c.restConfig()
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

// restConfig returns the address of the API server and the credentials.
func (c Connection) restConfig() (*rest.Config, error) {
	if c.AsKubectl {
		return c.loadAsKubectl()
	}
	if c.Kubeconfig == "" && c.Server == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no cluster specified, and this is not a pod: give a kubeconfig")
		}
		if err != nil {
			return nil, fmt.Errorf("read the credentials of this pod's ServiceAccount: %w; give a kubeconfig instead", err)
		}
		return config, nil
	}
	return c.loadKubeconfig()
}

// loadAsKubectl finds the cluster as kubectl does.
func (c Connection) loadAsKubectl() (*rest.Config, error) {
	rules, overrides := c.kubeconfig()
	loaded, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	files := cmp.Or(c.Kubeconfig, strings.Join(rules.Precedence, string(filepath.ListSeparator)))
	if err := c.checkContext(loaded, files); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster specified: give a kubeconfig, set KUBECONFIG, or write ~/.kube/config")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return config, nil
}

func (c Connection) kubeconfig() (*clientcmd.ClientConfigLoadingRules, *clientcmd.ConfigOverrides) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	return rules, &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: c.Server}, CurrentContext: c.Context}
}

// Namespace returns the default namespace, as in kubectl: the context's, the pod's, or "default".
func (c Connection) Namespace() (string, error) {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.kubeconfig()).Namespace()
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	return namespace, nil
}

// loadKubeconfig loads the kubeconfig. Unlike client-go's deferred loading, it does not use the pod's ServiceAccount if
// the file is empty: a file is briefly empty while it is being written.
func (c Connection) loadKubeconfig() (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}
	loaded, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %q: %w", c.Kubeconfig, err)
	}
	if err := c.checkContext(loaded, c.Kubeconfig); err != nil {
		return nil, err
	}
	overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: c.Server}}
	config, err := clientcmd.NewNonInteractiveClientConfig(*loaded, loaded.CurrentContext, overrides, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %q: %w", c.Kubeconfig, err)
	}
	return config, nil
}

// checkContext returns an error that names what is missing in the context. client-go would list all consequences,
// without the file name.
func (c Connection) checkContext(loaded *clientcmdapi.Config, files string) error {
	name := cmp.Or(c.Context, loaded.CurrentContext)
	switch kubeContext := loaded.Contexts[name]; {
	case name == "" && (len(loaded.Contexts) == 0 || c.Server != ""):
		return nil // there is no kubeconfig, or none is needed
	case name == "":
		return fmt.Errorf("kubeconfig %q has no current context, only %s", files, formatNames(loaded.Contexts))
	case kubeContext == nil:
		return fmt.Errorf("kubeconfig %q has no context %q; it has %s", files, name, formatNames(loaded.Contexts))
	default:
		return c.checkClusterAndUser(loaded, name, kubeContext)
	}
}

func (c Connection) checkClusterAndUser(loaded *clientcmdapi.Config, name string, kubeContext *clientcmdapi.Context) error {
	errorf := func(format string, args ...any) error {
		return fmt.Errorf("kubeconfig %q: context %q %s", kubeContext.LocationOfOrigin, name, fmt.Sprintf(format, args...))
	}
	cluster := loaded.Clusters[kubeContext.Cluster]
	switch {
	case c.Server != "":
	case kubeContext.Cluster == "":
		return errorf("names no cluster")
	case cluster == nil:
		return errorf("names the cluster %q, which is missing; there is %s", kubeContext.Cluster, formatNames(loaded.Clusters))
	case cluster.Server == "":
		return errorf("names the cluster %q, which has no server", kubeContext.Cluster)
	}
	if user := kubeContext.AuthInfo; user != "" && loaded.AuthInfos[user] == nil {
		return errorf("names the user %q, which is missing; there is %s", user, formatNames(loaded.AuthInfos))
	}
	return nil
}

// formatNames formats the names in a kubeconfig, truncated to a few.
func formatNames[T any](byName map[string]T) string {
	const maxNames = 8
	quoted := make([]string, 0, maxNames+1)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if len(quoted) == maxNames {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(byName)-maxNames))
			break
		}
		quoted = append(quoted, strconv.Quote(name))
	}
	return cmp.Or(strings.Join(quoted, ", "), "none")
}

// LogTo redirects client-go's log. It affects the whole process, so a program calls it once at startup.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }
