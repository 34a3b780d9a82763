package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Recorder counts what one webhook does. Its methods may be called at the same time from several goroutines.
type Recorder struct {
	reviewDuration                *prometheus.HistogramVec
	reviews, decisions, defaulted *prometheus.CounterVec
	internalErrors, refused       *prometheus.CounterVec
	inFlight                      prometheus.Gauge

	certificateExpiry, authorityExpiry moment

	configurationValid    prometheus.Gauge
	configurationSuccess  moment
	configurationFailures prometheus.Counter
}

// Words are the values of labels that belong to others. Every count of them exists from the start. Others may still come.
type Words struct {
	Paths    []string
	Outcomes []string // what becomes of a review
	Rules    []string
	Sources  []string // who can decide about defaults
	Settings []string // what can be added
	Failures []string // reasons of what fails inside
	Refusals []string // reasons of refused requests
}

// New returns a recorder that has counted nothing yet, and registers its metrics. It fails if one of that name is registered already.
func New(registerer prometheus.Registerer, words Words) (*Recorder, error) {
	in := &registration{with: registerer}
	r := &Recorder{
		reviewDuration: registered(in, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: ReviewDurationName, Help: reviewDurationHelp, Buckets: reviewDurationBuckets,
		}, []string{PathLabel})),
		reviews:        in.counters(ReviewsName, reviewsHelp, PathLabel, OutcomeLabel),
		decisions:      in.counters(DecisionsName, decisionsHelp, RuleLabel, ActionLabel),
		defaulted:      in.counters(DefaultedName, defaultedHelp, SourceLabel, SettingLabel),
		internalErrors: in.counters(InternalErrorsName, internalErrorsHelp, ReasonLabel),
		refused:        in.counters(RefusedRequestsName, refusedRequestsHelp, ReasonLabel),
		inFlight:       in.gauge(InFlightName, inFlightHelp),

		certificateExpiry: in.moment(CertificateExpiryName, certificateExpiryHelp),
		authorityExpiry:   in.moment(AuthorityExpiryName, authorityExpiryHelp),

		configurationValid:   in.gauge(ConfigurationValidName, configurationValidHelp),
		configurationSuccess: in.moment(ConfigurationSuccessName, configurationSuccessHelp),
		configurationFailures: registered(in, prometheus.NewCounter(prometheus.CounterOpts{
			Name: ConfigurationFailuresName, Help: configurationFailuresHelp,
		})),
	}
	r.startSeries(words)
	if err := errors.Join(in.errs...); err != nil {
		return nil, fmt.Errorf("register the webhook's metrics: %w", err)
	}
	return r, nil
}

// startSeries makes every count exist, at zero. Without a file the configuration is that of the program, and valid.
func (r *Recorder) startSeries(words Words) {
	for _, path := range words.Paths {
		r.reviewDuration.WithLabelValues(path)
	}
	start(r.reviews, words.Paths, words.Outcomes)
	start(r.decisions, words.Rules, Actions)
	start(r.defaulted, words.Sources, append([]string{Nothing}, words.Settings...))
	for _, reason := range words.Failures {
		r.internalErrors.WithLabelValues(reason)
	}
	for _, reason := range words.Refusals {
		r.refused.WithLabelValues(reason)
	}
	r.configurationValid.Set(1)
}

func start(counts *prometheus.CounterVec, firsts, seconds []string) {
	for _, first := range firsts {
		for _, second := range seconds {
			counts.WithLabelValues(first, second)
		}
	}
}

// Reviewed counts a request that was answered.
func (r *Recorder) Reviewed(path, outcome string, took time.Duration) {
	r.reviewDuration.WithLabelValues(path).Observe(took.Seconds())
	r.reviews.WithLabelValues(path, outcome).Inc()
}

// Decided counts a violation that somebody was told of. The action is one of Actions.
func (r *Recorder) Decided(rule, action string) { r.decisions.WithLabelValues(rule, action).Inc() }

// Defaulted counts a decision about a Service's default. The setting is empty if nothing was added.
func (r *Recorder) Defaulted(source, setting string) {
	if setting == "" {
		setting = Nothing
	}
	r.defaulted.WithLabelValues(source, setting).Inc()
}

// Failed counts what failed for a reason of ours.
func (r *Recorder) Failed(reason string) { r.internalErrors.WithLabelValues(reason).Inc() }

// Refused counts a request that was no review, or came at a bad time.
func (r *Recorder) Refused(reason string) { r.refused.WithLabelValues(reason).Inc() }

// InFlight adds to the reviews that are being worked on: 1 when one begins, -1 when it ends.
func (r *Recorder) InFlight(delta int) { r.inFlight.Add(float64(delta)) }

// CertificateExpires tells until when the certificate is valid that is served from now on.
func (r *Recorder) CertificateExpires(at time.Time) { r.certificateExpiry.set(at) }

// AuthorityExpires tells until when the authority is valid that signed it.
func (r *Recorder) AuthorityExpires(at time.Time) { r.authorityExpiry.set(at) }

// ConfigurationUpdated tells that what the configuration file says is in force from now on, or the default if there is no file.
func (r *Recorder) ConfigurationUpdated(now time.Time) {
	r.configurationValid.Set(1)
	r.configurationSuccess.set(now)
}

// ConfigurationFailed tells that the configuration file was changed to something that cannot be used.
func (r *Recorder) ConfigurationFailed() {
	r.configurationValid.Set(0)
	r.configurationFailures.Inc()
}
