package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/otherproxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

func heard(interruptions []status.Interruption, ago func(time.Time) string) string {
	if len(interruptions) == 0 {
		return "is heard"
	}
	var words []string
	for _, one := range interruptions {
		words = append(words, fmt.Sprintf("%s since %s: %s", one.Resource, ago(one.Since), one.Reason))
	}
	return "is not heard about " + strings.Join(words, "; ")
}

// counted says how many Services there are, and how many there should be.
func (n *nodeStatus) counted() string {
	words := fmt.Sprintf("%d in the kernel (%d expected)", n.Proxy.Services, n.Kernel.Services)
	if n.Proxy.DNSServices+n.Kernel.DNSServices > 0 {
		words += fmt.Sprintf("; %d answered by DNS (%d expected)", n.Proxy.DNSServices, n.Kernel.DNSServices)
	}
	return words
}

// notAlone says which other service proxies are on the node, and what to do; nil: nobody has looked.
func notAlone(others []otherproxy.Finding) string {
	switch {
	case others == nil:
		return "are wanted, with --service-proxy-name"
	case len(others) == 0:
		return "none has rules in nf_tables"
	}
	var words []string
	for _, other := range others {
		words = append(words, other.Says+"; "+other.Do)
	}
	return strings.Join(words, "; ")
}
