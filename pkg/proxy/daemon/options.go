package daemon

import (
	"net/netip"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/accounting"
)

// Options are the options of a daemon.
type Options struct {
	// Node is the name of the Node to act for.
	Node string
	// Manifests is the directory from which the state of the cluster is read; empty means an API server.
	Manifests string
	// Connection is how the API server is reached.
	Connection kube.Connection
	// View selects the objects that concern this proxy.
	View convert.View

	// Settings are the settings of the active configuration.
	Settings config.Settings
	// Configuration is the active configuration, with all defaults. ConfigzData is the content of /configz: the same with
	// our own active settings.
	Configuration *config.Configuration
	ConfigzData   map[string]any
	// ConfigFile is the file from which the configuration was read; nil means that there is none.
	ConfigFile *config.File
	// IgnoredSettings has a line for each setting without effect here, and for each document of another program.
	IgnoredSettings []string
	// Flags are the values of all flags, as /flagz shows them.
	Flags map[string]string

	// SecureMetricsAddress is where the metrics and the demand page are served over TLS to clients that the API server
	// authorizes; empty means that they are not.
	SecureMetricsAddress string
	// DNSAddress is where DNS for headless Services with topology keys is served; an invalid address means that it is not.
	// DNSZone is the domain and the TTL of answers.
	DNSAddress netip.AddrPort
	DNSZone    dns.Zone
	// XDSAddresses are where xDS is served, in the domain of DNSZone: IP:PORT, or unix:// and a path; none means that it
	// is not.
	XDSAddresses []string
	// NodeTopology selects the source of other nodes' labels, TopologyNamespace is the namespace of its publisher, and
	// ProxyService is the headless Service of the proxies' own pods; zero means that there is none.
	NodeTopology      apiserver.NodeTopology
	TopologyNamespace string
	ProxyService      model.ObjectName
	// UnreachableNodes selects how nodes that do not reply to this one are treated.
	UnreachableNodes UnreachableNodes
	// NodeCondition enables the condition on the Node that reports whether its Services work.
	NodeCondition bool
	// Account is how traffic is counted; nil means that it is not.
	Account *accounting.Settings
	// OwnTables makes this process the owner of our tables if the kernel keeps them after it ends.
	OwnTables bool
	// Build describes the program's build.
	Build cli.Build
}

// configurationFile returns the path of the configuration file, for messages.
func (o *Options) configurationFile() string {
	if o.ConfigFile == nil {
		return "flags only"
	}
	return o.ConfigFile.Path
}

// absManifests returns the absolute path of the manifests, for processes in other working directories; empty without
// manifests.
func (o *Options) absManifests() string {
	if o.Manifests == "" {
		return ""
	}
	path, _ := filepath.Abs(o.Manifests) // it fails without a working directory
	return path
}
