package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// runFlags are the flags of the daemon.
type runFlags struct {
	tableFlags
	healthAddress  string
	metricsAddress string
	logFormat      string
	logLevel       string
	ownTables      string

	// level is --log-level after Validate.
	level slog.Level
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	f.tableFlags.register(flags)
	flags.StringVar(&f.healthAddress, "health-address", "0.0.0.0:10256", "`IP:PORT` that serves /healthz, /livez and /readyz")
	flags.StringVar(&f.metricsAddress, "metrics-address", "127.0.0.1:10249", "`IP:PORT` that serves /metrics")
	flags.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "least `LEVEL` that is logged: debug, info, warn or error")
	flags.StringVar(&f.ownTables, "own-tables", "auto",
		"`WHEN` to own our tables, so that nobody else can change them: auto, where the kernel keeps them alive without us (6.9+), or never")
}

// Validate checks all flags, reads those that have an inner form, and tells every mistake at once.
func (f *runFlags) Validate() error {
	return errors.Join(
		f.tableFlags.Validate(),
		listenAddress("health-address", f.healthAddress),
		listenAddress("metrics-address", f.metricsAddress),
		f.differentAddresses(),
		oneOf("log-format", f.logFormat, "text", "json"),
		f.parseLevel(),
		oneOf("own-tables", f.ownTables, "auto", "never"),
	)
}

// differentAddresses refuses one address for two servers early, where the message can name the flags.
func (f *runFlags) differentAddresses() error {
	if f.healthAddress != f.metricsAddress || strings.HasSuffix(f.healthAddress, ":0") {
		return nil
	}
	return fmt.Errorf("--health-address and --metrics-address are both %s: each needs its own", f.healthAddress)
}

func (f *runFlags) parseLevel() error {
	err := oneOf("log-level", f.logLevel, "debug", "info", "warn", "error")
	if err != nil {
		return err
	}
	return f.level.UnmarshalText([]byte(f.logLevel))
}

// listenAddress accepts IP:PORT, and :PORT for all addresses of the machine.
func listenAddress(flag, value string) error {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("--%s %q is not IP:PORT, such as 127.0.0.1:10249", flag, value)
	}
	if _, err := netip.ParseAddr(host); host != "" && err != nil {
		return fmt.Errorf("--%s %q: %q is not an IP address", flag, value, host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--%s %q: %q is not a port number, 0 to 65535", flag, value, port)
	}
	return nil
}
