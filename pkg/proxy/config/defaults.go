package config

import (
	"cmp"
	"net"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The defaults, which are kube-proxy's.
const (
	healthzPort = "10256"
	metricsPort = "10249"

	defaultSyncPeriod = 30 * time.Second
	defaultQPS        = 5
	defaultBurst      = 10
)

// Default returns the configuration without any settings: all defaults.
func Default() *Configuration {
	c := &Configuration{}
	setDefaults(c)
	return c
}

// setDefaults sets the unset fields. Unlike in kube-proxy, an unset oomScoreAdj stays unset: the pod's
// priority class has set it already, and lowering it needs a capability that nothing else here needs. nodePortAddresses
// defaults to primary: kube-proxy leaves them empty in this mode, which means the same.
func setDefaults(c *Configuration) {
	c.APIVersion, c.Kind = APIVersion, kind
	c.Mode = cmp.Or(c.Mode, modeNFTables)
	c.DetectLocalMode = cmp.Or(c.DetectLocalMode, clusterCIDRMode)
	c.NFTables.SyncPeriod = cmp.Or(c.NFTables.SyncPeriod, metav1.Duration{Duration: defaultSyncPeriod})
	c.Logging.Format = cmp.Or(c.Logging.Format, "text")
	c.ClientConnection.ContentType = cmp.Or(c.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	c.ClientConnection.QPS = cmp.Or(c.ClientConnection.QPS, defaultQPS)
	c.ClientConnection.Burst = cmp.Or(c.ClientConnection.Burst, defaultBurst)
	if len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{primary}
	}
	setDefaultAddresses(c)
	setConntrackDefaults(c)
}

// setDefaultAddresses sets the servers' addresses in the family of bindAddress, and adds the port to an address without
// one.
func setDefaultAddresses(c *Configuration) {
	c.BindAddress = cmp.Or(c.BindAddress, "0.0.0.0")
	unspecified, loopback := "0.0.0.0", "127.0.0.1"
	if addr, err := netip.ParseAddr(c.BindAddress); err == nil && addr.Is6() {
		unspecified, loopback = "::", "::1"
	}
	c.HealthzBindAddress = withPort(cmp.Or(c.HealthzBindAddress, unspecified), healthzPort)
	c.MetricsBindAddress = withPort(cmp.Or(c.MetricsBindAddress, loopback), metricsPort)
}

func withPort(address, port string) string {
	if addr, err := netip.ParseAddr(address); err == nil {
		return net.JoinHostPort(addr.String(), port)
	}
	return address
}

func setConntrackDefaults(c *Configuration) {
	conntrack := &c.Conntrack
	conntrack.MaxPerCore = orNew(conntrack.MaxPerCore, 32*1024)
	conntrack.Min = orNew(conntrack.Min, 128*1024)
	conntrack.TCPEstablishedTimeout = orNew(conntrack.TCPEstablishedTimeout, metav1.Duration{Duration: 24 * time.Hour})
	conntrack.TCPCloseWaitTimeout = orNew(conntrack.TCPCloseWaitTimeout, metav1.Duration{Duration: time.Hour})
}

func orNew[T any](value *T, fallback T) *T {
	if value == nil {
		return &fallback
	}
	return value
}
