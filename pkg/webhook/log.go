package webhook

import (
	"context"
	"log"
	"log/slog"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/admission"
)

// tell counts and logs a verdict.
func (h *handler) tell(ctx context.Context, verdict *verdict) {
	for _, violation := range verdict.judgement.Denied {
		h.observer.Decided(string(violation.Rule), string(admission.Deny))
	}
	for _, violation := range verdict.judgement.Warned {
		h.observer.Decided(string(violation.Rule), string(admission.Warn))
	}
	if decision := verdict.defaulted; decision != nil {
		var setting admission.Setting
		if decision.Add != nil {
			setting = decision.Add.Setting
		}
		h.observer.Defaulted(string(decision.Source), string(setting))
	}
	h.logVerdict(ctx, verdict)
}

// logVerdict writes one line: a denial is of interest to whoever runs the cluster, all else to whoever looks for something.
func (h *handler) logVerdict(ctx context.Context, v *verdict) {
	level, message := slog.LevelDebug, "allowed"
	if !v.allowed() {
		level, message = slog.LevelInfo, "denied"
	}
	if !h.log.Enabled(ctx, level) {
		return
	}
	attributes := []slog.Attr{
		slog.String("operation", v.Operation), slog.String("kind", v.Kind.Kind),
		slog.String("namespace", v.Namespace), slog.String("name", v.name),
		slog.String("user", v.User.Name), slog.String("uid", v.UID), slog.Bool("dryRun", v.DryRun),
	}
	h.log.LogAttrs(ctx, level, message, append(attributes, v.outcome()...)...)
}

// outcome is what the log says of a verdict: the rules of a denial, or what the audit log is told.
func (v *verdict) outcome() []slog.Attr {
	if !v.allowed() {
		return []slog.Attr{slog.Any("rules", v.rules())}
	}
	var attributes []slog.Attr
	for key, value := range v.audit() {
		attributes = append(attributes, slog.String(key, value))
	}
	return attributes
}

// connectionLog takes what net/http says of single connections. Whoever connects and says nothing, as a load balancer's check does, is
// not worth a line; a handshake that fails is, for a caBundle that does not fit shows here.
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
