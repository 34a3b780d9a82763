package syncer_test

import (
	"net/netip"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// The commands that set the input of a scenario's proxy.

func (s *scenario) cmdNode(ts *testscript.TestScript, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: node NAME")
	}
	s.node = args[0]
	s.restart()
}

func (s *scenario) cmdDetector(ts *testscript.TestScript, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: detector HOW [ARG]")
	}
	how, rest := args[0], args[1:]
	switch {
	case how == "clustercidr" && len(rest) > 0:
		s.config.LocalTraffic = ruleset.LocalTraffic{Prefixes: prefixesOf(ts, rest)}
	case how == "nodecidr" && len(rest) == 0:
		s.config.LocalTraffic = ruleset.LocalTraffic{PodCIDRs: true}
	case how == "bridge" && len(rest) == 1:
		s.config.LocalTraffic = ruleset.LocalTraffic{Interface: rest[0]}
	case how == "prefix" && len(rest) == 1:
		s.config.LocalTraffic = ruleset.LocalTraffic{InterfacePrefix: rest[0]}
	case how == "none" && len(rest) == 0:
		s.config.LocalTraffic = ruleset.LocalTraffic{}
	default:
		ts.Fatalf("unknown detector: %v", args)
	}
	s.restart()
}

func (s *scenario) cmdNodePorts(ts *testscript.TestScript, args []string) {
	switch {
	case len(args) == 0:
		ts.Fatalf("usage: nodeports all, nodeports primary or nodeports PREFIX…")
	case args[0] == "all":
		s.config.NodePorts = model.NodePortAddresses{}
	case args[0] == "primary":
		s.config.NodePorts = model.NodePortAddresses{Primary: true}
	default:
		s.config.NodePorts = model.NodePortAddresses{Prefixes: prefixesOf(ts, args)}
	}
	s.restart()
}

func (s *scenario) cmdMasqueradeAll(*testscript.TestScript, []string) {
	s.config.MasqueradeAll = true
	s.restart()
}

func (s *scenario) cmdRestart(*testscript.TestScript, []string) { s.restart() }

func (s *scenario) cmdAddresses(ts *testscript.TestScript, args []string) {
	present := []netip.Addr{}
	for _, arg := range args {
		addr, err := netip.ParseAddr(arg)
		ts.Check(err)
		present = append(present, addr)
	}
	s.apply(model.Change{LocalAddrs: present})
}

func (s *scenario) apply(change model.Change) {
	s.everything = mergeAs(s.node, s.everything, change)
	s.proxy.Apply(change)
}

func prefixesOf(ts *testscript.TestScript, args []string) []netip.Prefix {
	var list []netip.Prefix
	for _, arg := range args {
		prefix, err := netip.ParsePrefix(arg)
		ts.Check(err)
		list = append(list, prefix)
	}
	return list
}
