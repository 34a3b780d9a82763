package server

import (
	"context"
	"log"
	"log/slog"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// report counts and logs a decision.
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
		h.observer.Defaulted(string(decision.Source), string(setting))
	}
	h.logDecision(ctx, decision)
}

// logDecision writes one line: denials for the cluster's administrator, all else at Debug.
func (h *handler) logDecision(ctx context.Context, decision *reviewDecision) {
	level, message := slog.LevelDebug, "allowed"
	if !decision.allowed() {
		level, message = slog.LevelInfo, "denied"
	}
	if !h.log.Enabled(ctx, level) {
		return
	}
	attributes := []slog.Attr{
		clientAttr("operation", decision.Operation), clientAttr("kind", decision.Kind.Kind), clientAttr("namespace", decision.Namespace),
		clientAttr("name", decision.name),
		clientAttr("user", decision.User.Name), clientAttr("uid", decision.UID), slog.Bool("dryRun", decision.DryRun),
	}
	h.log.LogAttrs(ctx, level, message, append(attributes, decision.outcomeAttrs()...)...)
}

const (
	// maxLogged is how many bytes of a value from the client a log line repeats: the client need not be an API server. No
	// name in Kubernetes is longer.
	maxLogged = 253
	// maxLoggedError is the same for an error's text, which may contain several such values.
	maxLoggedError = 1024
)

// clientAttr returns an attribute with a value from the client.
func clientAttr(key, value string) slog.Attr { return slog.String(key, rules.Cut(value, maxLogged)) }

// truncateForLog truncates a message that may contain several values from the client.
func truncateForLog(text string) string { return rules.Cut(text, maxLoggedError) }

// outcomeAttrs returns the log attributes of a decision: the rules of a denial, or the audit annotations.
func (d *reviewDecision) outcomeAttrs() []slog.Attr {
	if !d.allowed() {
		return []slog.Attr{slog.Any("rules", d.denyingRules())}
	}
	var attributes []slog.Attr
	for key, value := range d.audit() {
		attributes = append(attributes, slog.String(key, truncateForLog(value)))
	}
	return attributes
}

// connectionLog receives net/http's messages about single connections. A client that connects and sends nothing, as a
// load balancer's health check does, is logged at Debug. A failed handshake is a warning: it may be caused by a wrong
// caBundle.
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
