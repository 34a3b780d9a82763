// Command nodedns is the CoreDNS that NodeLocal DNSCache 1.26.6 and 1.26.7 embed, with the built-in plugins that its
// Corefile uses, and health. NodeLocal DNSCache itself adds an interface and NOTRACK rules, and is not available as a
// Go module.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	coremain.Run()
}
