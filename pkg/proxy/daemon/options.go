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

// Options say what a daemon should do.
type Options struct {
	// Node is the name of the Node to act for.
	Node string
	// Manifests is the folder that the state of the cluster is read from; empty for an API server.
	Manifests string
	// Connection is how the API server is reached.
	Connection kube.Connection
	// View says which objects concern this proxy.
	View convert.View

	// Settings are what the configuration in force says.
	Settings config.Settings
	// Configuration is the configuration in force, with all defaults. Configz is what /configz shows: the same with our
	// own settings in force.
	Configuration *config.Configuration
	ConfigzData   map[string]any
	// ConfigFile is the file that the configuration was read from; nil without one.
	ConfigFile *config.File
	// IgnoredSettings are a line for each setting that has no meaning here, and each document of another program.
	IgnoredSettings []string
	// Flags are the values of all flags, as /flagz shows them.
	Flags map[string]string

	// SecureMetricsAddress is where the metrics and the page of demand are served over TLS to clients that the API server
	// allows; empty for nowhere.
	SecureMetricsAddress string
	// DNSAddress is where DNS for headless Services with topology keys is answered; invalid for nowhere. DNSZone is the
	// domain, and how long answers may be kept.
	DNSAddress netip.AddrPort
	DNSZone    dns.Zone
	// XDSAddresses are where xDS is answered, in the domain of DNSZone: IP:PORT, or unix:// and a path; none for nowhere.
	XDSAddresses []string
	// NodeTopology selects the source of other nodes' labels, TopologyNamespace where its publisher is, and
	// ProxyService is the headless Service over the proxies' own pods; zero for none.
	NodeTopology      apiserver.NodeTopology
	TopologyNamespace string
	ProxyService      model.ObjectName
	// UnreachableNodes is what is done about nodes that do not answer this one.
	UnreachableNodes UnreachableNodes
	// NodeCondition asks for a condition on the Node that says when its Services work.
	NodeCondition bool
	// Account says how traffic is counted; nil: it is not.
	Account *accounting.Settings
	// OwnTables asks to own our tables if the kernel keeps them alive without us.
	OwnTables bool
	// Build is what the program was made from.
	Build cli.Build
}

// configurationFile is the path of the configuration file, for messages.
func (o *Options) configurationFile() string {
	if o.ConfigFile == nil {
		return "none but flags"
	}
	return o.ConfigFile.Path
}

// absManifests is the absolute path of the manifests, for processes in other working directories; empty without manifests.
func (o *Options) absManifests() string {
	if o.Manifests == "" {
		return ""
	}
	path, _ := filepath.Abs(o.Manifests) // it fails without a working directory
	return path
}
