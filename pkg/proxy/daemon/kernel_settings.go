package daemon

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/sysctl"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
)

// checkInterval is how often kernel settings are checked.
const checkInterval = 10 * time.Second

// newSettings checks the kernel settings at once, and returns the component that checks them periodically.
func newSettings(c *common) component {
	k := newKernelSettings(c.log, &c.options.Settings, c.options.Account != nil, c.conn.Families())
	k.check()
	c.recorder.CollectFrom(metrics.KernelSettingsUnmet, k.unmet)
	return component{run: k.run, summary: func(s *status.Summary) { s.KernelSettings = k.summary() }}
}

// kernelSettings keeps the kernel settings at their desired values. No failure here stops the proxy: a container with
// only CAP_NET_ADMIN may be allowed to set some of them, or none.
type kernelSettings struct {
	log *slog.Logger

	mutex    sync.Mutex
	settings *sysctl.Enforcer
}

// newKernelSettings returns the settings that the configuration requires, those for accounting if it is on, and packet
// forwarding for the families. Conntrack must have been opened: before that the kernel lacks its settings.
func newKernelSettings(log *slog.Logger, settings *config.Settings, countsTraffic bool, families []model.Family) *kernelSettings {
	var desired []sysctl.Setting
	// kube-proxy counts the machine's cores; we count those that the process may use. They differ only if the process is
	// pinned to some cores. The value is then lower, which never lowers a setting.
	for _, want := range settings.Conntrack.Settings(runtime.NumCPU()) {
		desired = append(desired, sysctl.Setting{DesiredValue: want})
	}
	if countsTraffic {
		desired = append(desired,
			sysctl.Setting{
				DesiredValue: sysctl.ConntrackBytes, Fallback: nft.CountBytes,
				Impact: "connections that start now are counted without their bytes",
			},
			sysctl.Setting{
				DesiredValue: sysctl.ConntrackEvents, CheckOnly: true,
				Impact: "conntrack does not report the connections that end, so only those that move more than 1 MiB are counted",
			})
	}
	forwarding := map[model.Family]sysctl.DesiredValue{model.IPv4: sysctl.ForwardingIPv4, model.IPv6: sysctl.ForwardingIPv6}
	for _, family := range families {
		desired = append(desired, sysctl.Setting{
			DesiredValue: forwarding[family], CheckOnly: true, Optional: true,
			Impact: "this node does not forward " + family.String() + " packets, so connections to Services do not reach pods on other nodes",
		})
	}
	return &kernelSettings{log: log, settings: sysctl.NewEnforcer(sysctl.Root, desired...)}
}

// run checks the settings periodically until ctx ends.
func (k *kernelSettings) run(ctx context.Context) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			k.check()
		}
	}
}

func (k *kernelSettings) check() {
	k.mutex.Lock()
	changed := k.settings.Reconcile(time.Now())
	k.mutex.Unlock()
	for i := range changed {
		logSetting(k.log, &changed[i])
	}
}

func (k *kernelSettings) states() []sysctl.State {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.settings.States()
}

// summary returns the settings for the page /summary: those that differ from the desired value, or did.
func (k *kernelSettings) summary() []status.KernelSetting {
	list := []status.KernelSetting{}
	for _, state := range k.states() {
		if state.UnmetSince.IsZero() && state.Restored == 0 {
			continue
		}
		setting := status.KernelSetting{
			Name: state.Setting.Name, Desired: state.Setting.Value, Value: state.Result.Previous, Impact: state.Setting.Impact,
			Remedy: state.Setting.Advice(), Restored: state.Restored,
		}
		if !state.UnmetSince.IsZero() {
			setting.UnmetSince = &state.UnmetSince
		}
		if state.Restored > 0 {
			setting.RestoredAt = &state.RestoredAt
		}
		list = append(list, setting)
	}
	return list
}

// logSetting logs the result for a kernel setting in one line.
func logSetting(log *slog.Logger, state *sysctl.State) {
	setting, result := &state.Setting, &state.Result
	attributes := []any{"sysctl", setting.Name, "value", result.Previous, "desired", setting.Value}
	switch result.Outcome {
	case sysctl.Met:
		log.Info("a kernel setting has its desired value again", attributes...)
		return
	case sysctl.Written:
		if state.Restored == 0 {
			log.Info("changed a kernel setting", attributes...)
			return
		}
		attributes = append(attributes, "restored", state.Restored)
		if setting.Impact != "" {
			attributes = append(attributes, "impact", setting.Impact)
		}
		log.Warn("another program changed a kernel setting; restored it", attributes...)
		return
	case sysctl.Missing, sysctl.Unmet:
	}
	message := "failed to set a kernel setting"
	switch {
	case setting.CheckOnly:
		message, attributes = setting.Impact, attributes[:4]
	case result.Outcome == sysctl.Missing:
		log.Warn("this kernel lacks a setting", attributes...)
		return
	case setting.Impact != "":
		attributes = append(attributes, "impact", setting.Impact)
	}
	attributes = append(attributes, "fix", setting.Advice())
	if result.Err != nil {
		attributes = append(attributes, "error", result.Err)
	}
	log.Warn(message, attributes...)
}

// unmet exports, for each setting, whether it differs from the desired value.
func (k *kernelSettings) unmet(add metrics.Add) {
	for _, state := range k.states() {
		unmet := 0.0
		if !state.UnmetSince.IsZero() {
			unmet = 1
		}
		add(unmet, state.Setting.Name)
	}
}
