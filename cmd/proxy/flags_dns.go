package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/dns"
)

// dnsFlags configure whether, where and how DNS serves names of headless Services.
type dnsFlags struct {
	bindAddress string
	zone        dns.Zone
	podNames    bool

	// address is the address of the DNS server, after Validate; the zero value means no server.
	address netip.AddrPort
}

// The maximum TTL, and the maximum length of the cluster domain. A longer domain would leave no room for the names of
// Services.
const (
	maxDNSTTL           = time.Hour
	maxClusterDomainLen = 100
)

func (f *dnsFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.bindAddress, "dns-bind-address", "",
		"`IP:PORT`, such as 127.0.0.1:10053, that serves DNS for headless Services with topology keys, with the endpoints for this node, "+
			"and refuses all other names; the node's DNS cache should query it first (default: no server)")
	flags.DurationVar(&f.zone.TTL, "dns-ttl", 5*time.Second, "`TIME` for which a response may be cached, in whole seconds")
	flags.BoolVar(&f.podNames, "dns-endpoint-pod-names", false,
		"SRV records name endpoints without a hostname after their pods instead of their addresses, like the cluster's CoreDNS with "+
			"endpoint_pod_names in its Corefile")
	flags.StringVar(&f.zone.Domain, "cluster-domain", "cluster.local", "`DOMAIN` of the cluster, as in the kubelet's configuration")
}

// Validate requires a single address: with several, as for 0.0.0.0, a response could come from another address than the
// one that was queried.
func (f *dnsFlags) Validate() error {
	var errs []error
	if f.bindAddress != "" {
		address, err := netip.ParseAddrPort(f.bindAddress)
		if err != nil || address.Addr().IsUnspecified() {
			errs = append(errs, fmt.Errorf("--dns-bind-address %q is not one address and a port, such as 127.0.0.1:10053", f.bindAddress))
		} else {
			f.address = address
		}
	}
	if f.zone.TTL < 0 || f.zone.TTL > maxDNSTTL || f.zone.TTL%time.Second != 0 {
		errs = append(errs, fmt.Errorf("--dns-ttl %s: must be whole seconds, at most %s", f.zone.TTL, maxDNSTTL))
	}
	domain := strings.TrimSuffix(f.zone.Domain, ".")
	if problems := validation.IsDNS1123Subdomain(domain); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--cluster-domain %q: %s", f.zone.Domain, strings.Join(problems, "; ")))
	} else if len(domain) > maxClusterDomainLen {
		errs = append(errs, fmt.Errorf("--cluster-domain %q: must have at most %d characters", f.zone.Domain, maxClusterDomainLen))
	}
	return errors.Join(errs...)
}
