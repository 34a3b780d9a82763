package server

import (
	"context"
	"log"
	"log/slog"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// report counts and logs a verdict.
func (h *handler) report(ctx context.Context, decision *reviewDecision) {
	for _, violation := range decision.result.Denied {
		h.observer.Decided(string(violation.Rule), string(rules.Deny))
	}
	for _, violation := range decision.result.Warned {
		h.observer.Decided(string(violation.Rule), string(rules.Warn))
	}
	if decision := decision.defaulted; decision != nil {
		var setting rules.Setting
		if decision.Add != nil {
			setting = decision.Add.Setting
		}
		h.observer.Defaulted(string(decision.Origin), string(setting))
	}
	h.logDecision(ctx, decision)
}

// logDecision writes one line: a denial is of interest to the cluster's administrator, all else for debugging.
func (h *handler) logDecision(ctx context.Context, v *reviewDecision) {
	level, message := slog.LevelDebug, "allowed"
	if !v.allowed() {
		level, message = slog.LevelInfo, "denied"
	}
	if !h.log.Enabled(ctx, level) {
		return
	}
	attributes := []slog.Attr{
		logged("operation", v.Operation), logged("kind", v.Kind.Kind), logged("namespace", v.Namespace), logged("name", v.name),
		logged("user", v.User.Name), logged("uid", v.UID), slog.Bool("dryRun", v.DryRun),
	}
	h.log.LogAttrs(ctx, level, message, append(attributes, v.outcome()...)...)
}

const (
	// maxLogged is how many bytes the log repeats of what a caller wrote: a caller need not be an API server. No name
	// in Kubernetes is longer.
	maxLogged = 253
	// maxLoggedError is the same for an error's text, which may repeat several of these.
	maxLoggedError = 1024
)

// logged is something that a caller wrote.
func logged(key, value string) slog.Attr { return slog.String(key, rules.Cut(value, maxLogged)) }

// truncateForLog is a text of ours that may repeat several things that a caller wrote.
func truncateForLog(text string) string { return rules.Cut(text, maxLoggedError) }

// outcome is what the log says of a verdict: the rules of a denial, or what the audit log has.
func (v *reviewDecision) outcome() []slog.Attr {
	if !v.allowed() {
		return []slog.Attr{slog.Any("rules", v.rules())}
	}
	var attributes []slog.Attr
	for key, value := range v.audit() {
		attributes = append(attributes, slog.String(key, truncateForLog(value)))
	}
	return attributes
}

// connectionLog takes what net/http says of single connections. A client that connects and says nothing, as a load
// balancer's check does, is not worth a line. A handshake that fails is: a caBundle that does not fit shows here.
type connectionLog struct{ log *slog.Logger }

func (c connectionLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	write := c.log.Warn
	if strings.HasPrefix(text, "http: TLS handshake error") && strings.HasSuffix(text, ": EOF") {
		write = c.log.Debug
	}
	write(text)
	return len(line), nil
}

func (c connectionLog) logger() *log.Logger { return log.New(c, "", 0) }
