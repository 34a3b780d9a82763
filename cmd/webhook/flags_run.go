package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/server"
)

// The values of --cert-source.
const (
	certSelfSigned = "self-signed"
	certFiles      = "files"
)

// runFlags are the flags of the server. They configure the process; the file of --config sets the rules and the
// defaults.
type runFlags struct {
	config, kubeconfig                           string
	webhookAddress, healthAddress, metricAddress string

	namespace, service, secret string
	mutating, validating       string

	certSource, certFile, keyFile string
	minTLSVersion                 string
	shutdownDelay                 time.Duration
	publishTopology               bool
	measureDemand                 bool
	demandAccount, proxyService   string
	demandPort                    uint16
	defaultDemandSource           string
	limits                        server.Limits

	logLevel, logFormat string

	// level and tlsVersion are parsed from two of the flags by validate.
	level      slog.Level
	tlsVersion uint16
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "",
		"`FILE` with a TopologyAdmissionConfiguration, reloaded when it changes; without it, rules are as 'webhook rules' lists them, "+
			"and there are no defaults")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"`FILE` with the kubeconfig; without it, the pod's ServiceAccount is used")
	flags.StringVar(&f.webhookAddress, "webhook-bind-address", ":9443", "`[IP]:PORT` that serves admission reviews over HTTPS")
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", ":8081", "`[IP]:PORT` that serves /healthz and /readyz; 0 for none")
	flags.StringVar(&f.metricAddress, "metrics-bind-address", ":8080",
		"`[IP]:PORT` that serves /metrics, without authentication; 0 for none")
	flags.StringVar(&f.namespace, "namespace", "vicinity-system", "`NAMESPACE` of the webhook, whose Services are given no defaults")
	flags.StringVar(&f.service, "service", "vicinity-webhook",
		"`NAME` of the Service through which API servers call the webhook; the certificate is issued for it")
	flags.StringVar(&f.secret, "secret", "vicinity-webhook-tls",
		"`NAME` of the Secret in which the replicas keep their certificate, with --cert-source=self-signed")
	flags.StringVar(&f.mutating, "mutating-webhook-configuration", "vicinity-webhook",
		"`NAME` of the MutatingWebhookConfiguration whose caBundle is kept up to date, with --cert-source=self-signed")
	flags.StringVar(&f.validating, "validating-webhook-configuration", "vicinity-webhook",
		"`NAME` of the ValidatingWebhookConfiguration whose caBundle is kept up to date, with --cert-source=self-signed")
	flags.StringVar(&f.certSource, "cert-source", certSelfSigned,
		"`SOURCE` of the certificate: self-signed, created, renewed and put into the configurations here; files, of --tls-cert-file "+
			"and --tls-private-key-file, renewed and trusted by other means")
	flags.StringVar(&f.certFile, "tls-cert-file", "",
		"`FILE` with the certificate, followed by intermediate certificates; reloaded when it changes")
	flags.StringVar(&f.keyFile, "tls-private-key-file", "", "`FILE` with its key")
	flags.StringVar(&f.minTLSVersion, "tls-min-version", "VersionTLS13", "minimum `VERSION` of TLS: VersionTLS12 or VersionTLS13")
	flags.DurationVar(&f.shutdownDelay, "shutdown-delay", server.DefaultShutdownDelay,
		"`TIME` for which all requests are still served after SIGTERM, until the cluster's proxies have removed this pod")
	flags.BoolVar(&f.publishTopology, "publish-topology", false,
		"also publish the topology of nodes in TopologySlices, which proxies of large clusters read; one replica at a time does. It needs "+
			"the component topology-slices of the manifests")
	flags.BoolVar(&f.measureDemand, "measure-demand", false,
		"also poll all proxies for the demand on load-bounded Services, report where it differs from the assumed one, and publish it for "+
			"Services that are set to measured demand; one replica at a time does. It needs the component demand of the manifests")
	flags.StringVar(&f.demandAccount, "demand-service-account", "vicinity-demand-reader",
		"`NAME` of the ServiceAccount in --namespace whose token authenticates to the proxies, with --measure-demand")
	flags.Uint16Var(&f.demandPort, "demand-port", 10449, "`PORT` at which proxies serve /demand: that of their --secure-metrics-bind-address")
	flags.StringVar(&f.defaultDemandSource, "default-demand-source", "",
		"`SOURCE` of the demand for load-bounded Services that name neither one nor clients. The only value is measured: their measured "+
			"demand is published. Give the proxies' flag of that name the same value. It needs --measure-demand")
	flags.StringVar(&f.proxyService, "proxy-service", "kube-system/vicinity-proxy",
		"`NAMESPACE/NAME` of the Service whose EndpointSlices list the proxies, with --measure-demand")
	f.limits = server.DefaultLimits()
	flags.Int64Var(&f.limits.InFlight, "max-in-flight", f.limits.InFlight,
		"maximum `NUMBER` of concurrent reviews; others are rejected, to be retried after a second")
	flags.StringVar(&f.logLevel, "log-level", "info",
		"lowest `LEVEL` that is logged: debug, info, warn or error. info has a line for each request that is denied")
	flags.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")
}

// validate parses the values and reports all errors at once.
func (f *runFlags) validate() error {
	var errs []error
	addError := func(format string, values ...any) { errs = append(errs, fmt.Errorf(format, values...)) }
	switch f.certSource {
	case certSelfSigned:
		if f.certFile != "" || f.keyFile != "" {
			addError("--tls-cert-file and --tls-private-key-file need --cert-source=%s", certFiles)
		}
	case certFiles:
		if f.certFile == "" || f.keyFile == "" {
			addError("--cert-source=%s needs --tls-cert-file and --tls-private-key-file", certFiles)
		}
	default:
		addError("--cert-source %q is neither %s nor %s", f.certSource, certSelfSigned, certFiles)
	}
	versions := map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}
	if f.tlsVersion = versions[f.minTLSVersion]; f.tlsVersion == 0 {
		addError("--tls-min-version %q is neither VersionTLS12 nor VersionTLS13", f.minTLSVersion)
	}
	if namespace, name, found := strings.Cut(f.proxyService, "/"); !found || namespace == "" || name == "" {
		addError("--proxy-service %q is not NAMESPACE/NAME", f.proxyService)
	}
	switch f.defaultDemandSource {
	case "":
	case policy.Measured:
		if !f.measureDemand {
			addError("--default-demand-source=%s needs --measure-demand", policy.Measured)
		}
	default:
		addError("--default-demand-source %q is not %s", f.defaultDemandSource, policy.Measured)
	}
	if f.shutdownDelay < 0 {
		addError("--shutdown-delay %s is negative", f.shutdownDelay)
	}
	if f.limits.InFlight < 1 {
		addError("--max-in-flight %d would reject every review", f.limits.InFlight)
	}
	if err := f.level.UnmarshalText([]byte(f.logLevel)); err != nil {
		addError("--log-level %q must be one of: debug, info, warn, error", f.logLevel)
	}
	if f.logFormat != "text" && f.logFormat != "json" {
		addError("--log-format %q is neither text nor json", f.logFormat)
	}
	return errors.Join(errs...)
}
