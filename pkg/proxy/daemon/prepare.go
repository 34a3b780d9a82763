package daemon

import (
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/sysctl"
)

// oomScoreFile is the file for this process's oom_score_adj.
const oomScoreFile = "/proc/self/oom_score_adj"

// prepareNode applies the kernel settings that the configuration wants, and checks whether the kernel forwards packets
// of some families. No failure here stops the proxy: a container with only CAP_NET_ADMIN may be allowed some of it, or
// nothing.
//
// It must come after conntrack was reached: before that the kernel does not have its settings.
func prepareNode(log *slog.Logger, settings *config.Settings, families []model.Family) {
	// kube-proxy counts the machine's cores; we count those that the process may use. They differ only if the process is
	// pinned to some cores. Then we ask for less, which never lowers a setting.
	wants := settings.Conntrack.Wants(runtime.NumCPU())
	for _, result := range sysctl.Apply(sysctl.Root, wants...) {
		logSysctl(log, result)
	}
	if slices.Contains(families, model.IPv4) {
		warnOfForwarding(log, sysctl.ForwardingIPv4)
	}
	if slices.Contains(families, model.IPv6) {
		warnOfForwarding(log, sysctl.ForwardingIPv6)
	}
	if score := settings.OOMScoreAdj; score != nil {
		if err := os.WriteFile(oomScoreFile, []byte(strconv.Itoa(int(*score))), 0); err != nil {
			log.Warn("could not set oom_score_adj", "oom-score-adj", *score, "error", err)
		}
	}
}

// Prepare is --init-only.
func Prepare(log *slog.Logger, settings *config.Settings) error {
	table, err := conntrack.Dial()
	if err != nil {
		return err
	}
	prepareNode(log, settings, model.Families)
	return table.Close()
}

// logSysctl logs the outcome for a kernel setting, in one line.
func logSysctl(log *slog.Logger, result sysctl.Result) {
	attributes := []any{"sysctl", result.Want.Name, "value", result.Before, "wanted", result.Want.Value}
	switch result.Outcome {
	case sysctl.Met:
	case sysctl.Written:
		log.Info("changed a kernel setting", attributes...)
	case sysctl.Missing:
		log.Warn("this kernel lacks a setting", attributes...)
	case sysctl.Unmet:
		log.Warn("a kernel setting is not as wanted, and cannot be changed from here",
			append(attributes, "set-it", result.Want.Advice(), "error", result.Err)...)
	}
}

// warnOfForwarding warns that packets for pods on other nodes are dropped here. A family that the kernel lacks is
// ignored.
func warnOfForwarding(log *slog.Logger, want sysctl.Want) {
	for _, result := range sysctl.Check(sysctl.Root, want) {
		switch {
		case result.Err != nil:
			log.Warn("could not read whether this node forwards packets", "error", result.Err)
		case result.Outcome == sysctl.Unmet:
			log.Warn("this node does not forward packets, so connections to Services do not reach pods on other nodes",
				"sysctl", want.Name, "value", result.Before, "set-it", want.Advice())
		}
	}
}
