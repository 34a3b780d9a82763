package certs

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A simulated cluster: one Secret, two configurations, and replicas. Each read and write of a replica is a step of its
// own, so that all interleavings occur. A replica may be killed between two steps, or pause for days and then continue.

// faultSet are faults in the algorithm. The simulation must detect each.
type faultSet struct {
	skipVersionCheck bool // patches do not test the version
	noTrustDelay     bool // a certificate is served as soon as its CA is trusted
	dropCAsEarly     bool // older CAs are dropped at once
}

// chances are the probabilities of events in each step, in 1/1000.
type chances struct{ crash, pause, reset int }

type simulation struct {
	t        *testing.T
	rng      *rand.Rand
	now      time.Time
	settings Settings
	faults   faultSet
	chances  chances

	secret         *simulatedSecret
	configurations []*simulatedConfiguration
	replicas       []*replica

	allTrusted bool // set once all replicas were trusted; from then on they always must be
	violation  string
	verified   map[string]*verification
	signers    map[string]bool // every CA that ever signed
}

type simulatedSecret struct{ data map[string][]byte }

// simulatedConfiguration has the history of its content, because API servers lag behind.
type simulatedConfiguration struct {
	name    string
	version int
	history []bundleVersion
}

type bundleVersion struct {
	bundle  string
	until   time.Time // zero for the current content
	foreign bool      // written by another program: no guarantee applies
}

func (c *simulatedConfiguration) currentBundle() string { return c.history[len(c.history)-1].bundle }

func (c *simulatedConfiguration) record(now time.Time, bundle string, foreign bool) {
	c.history[len(c.history)-1].until = now
	c.history = append(c.history, bundleVersion{bundle: bundle, foreign: foreign})
	c.version++
}

// lag is the maximum lag of an API server: less than TrustDelay.
const lag = 50 * time.Second

// replica is the state of a replica between two steps.
type replica struct {
	served      *tls.Certificate
	trust       trust
	pausedUntil time.Time // it pauses until then
	seen        []simulatedView
	read        *simulatedSecret // the Secret as read; nil if there was none
	view        view
	steps       []step
	phase       int
}

type simulatedView struct {
	configuration *simulatedConfiguration
	version       int
	bundle        string
}

func newSimulation(t *testing.T, seed uint64, faults faultSet, chances chances) *simulation {
	s := &simulation{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_800_000_000, 0), faults: faults, chances: chances,
		settings: Settings{Names: ServiceNames("webhook", "system"), CA: 24 * time.Hour, Leaf: 8 * time.Hour, TrustDelay: time.Minute},
		verified: map[string]*verification{}, signers: map[string]bool{},
	}
	if faults.noTrustDelay {
		s.settings.TrustDelay = 0
	}
	for _, name := range []string{"mutating", "validating"} {
		s.configurations = append(s.configurations, &simulatedConfiguration{name: name, history: []bundleVersion{{}}})
	}
	for range 3 {
		s.replicas = append(s.replicas, &replica{})
	}
	return s
}

// run simulates a number of steps. It returns early when a guarantee is violated.
func (s *simulation) run(steps int) {
	for range steps {
		s.advanceClock()
		r := s.replicas[s.rng.IntN(len(s.replicas))]
		switch {
		case s.now.Before(r.pausedUntil):
		case s.happens(s.chances.crash):
			*r = replica{}
		case s.happens(s.chances.pause):
			r.pausedUntil = s.now.Add(randomDuration(s.rng, 5*time.Hour))
		case s.happens(s.chances.reset):
			s.configurations[s.rng.IntN(2)].record(s.now, []string{"", "nonsense"}[s.rng.IntN(2)], true)
		default:
			s.stepReplica(r)
		}
		if s.check(); s.violation != "" {
			return
		}
	}
}

func (s *simulation) happens(chance int) bool { return s.rng.IntN(1000) < chance }

func randomDuration(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}

// advanceClock advances the clock: usually by seconds, and sometimes by minutes.
func (s *simulation) advanceClock() {
	limit := 3 * time.Second
	switch chance := s.rng.IntN(100); {
	case chance < 3:
		limit = 40 * time.Minute
	case chance < 15:
		limit = time.Minute
	}
	s.now = s.now.Add(randomDuration(s.rng, limit))
}

// stepReplica lets a replica perform one read or write.
func (s *simulation) stepReplica(r *replica) {
	switch {
	case r.phase == 0:
		r.seen, r.phase = nil, 1
		fallthrough
	case r.phase <= len(s.configurations):
		c := s.configurations[r.phase-1]
		r.seen = append(r.seen, simulatedView{c, c.version, c.currentBundle()})
		r.phase++
	case r.phase == len(s.configurations)+1:
		s.decide(r)
		r.phase++
	case len(r.steps) == 0:
		r.phase = 0
	default:
		step := r.steps[0]
		r.steps = r.steps[1:]
		s.takeStep(r, step)
	}
}

func (s *simulation) decide(r *replica) {
	r.read = s.secret
	r.view = view{now: s.now}
	for _, seen := range r.seen {
		r.view.configurations = append(r.view.configurations, configuration{resource: seen.configuration.name, bundles: []string{seen.bundle}})
	}
	if r.read != nil {
		r.view.content = readContent(r.read.data)
		if _, err := r.view.content.trusted.verify(r.view.content.leaf, s.settings.Names[0], s.now); err == nil {
			r.served = r.view.content.leaf
		}
	}
	r.trust = r.trust.observe(s.now, r.view.content, r.view.configurations)
	r.view.trustedSince = r.trust.since
	r.steps = r.view.decide(s.settings)
	if last := &r.steps[len(r.steps)-1]; s.faults.dropCAsEarly && last.reason == "nothing is due" && len(r.view.content.trusted) > 1 {
		last.action = dropOlderCAs
	}
}

func (s *simulation) takeStep(r *replica, step step) {
	switch step.action {
	case pause:
	case patchBundle:
		for _, seen := range r.seen {
			if seen.configuration.name == step.configuration.resource && (s.faults.skipVersionCheck || seen.version == seen.configuration.version) {
				seen.configuration.record(s.now, string(r.view.content.trusted.encode()), false)
			}
		}
	default:
		if r.read != s.secret {
			return // a conflict
		}
		s.write(r, step)
	}
}

func (s *simulation) write(r *replica, step step) {
	after, err := view{now: s.now, content: r.view.content}.contentAfter(step.action, s.settings)
	if err != nil {
		s.t.Fatalf("%s: %v", step.action, err)
	}
	data, err := after.data()
	if err != nil {
		s.t.Fatalf("%s: %v", step.action, err)
	}
	s.secret = &simulatedSecret{data}
	s.signers[string(after.signer.Certificate.Raw)] = true
}

// verification is the result of verifying a certificate with a bundle, apart from expiry.
type verification struct {
	until time.Time // of the CA that verifies it
	err   error
}

// check checks that each API server, however far behind, trusts each replica with an unexpired certificate.
func (s *simulation) check() {
	for i, r := range s.replicas {
		if r.served == nil || s.now.After(r.served.Leaf.NotAfter) {
			continue
		}
		for _, configuration := range s.configurations {
			for _, version := range configuration.history {
				if version.foreign || !version.until.IsZero() && s.now.After(version.until.Add(lag)) {
					continue
				}
				if err := s.verifyReplica(version.bundle, r); err != nil && s.allTrusted {
					s.violation = fmt.Sprintf("replica %d would not be trusted by the %s configuration: %v", i, configuration.name, err)
				} else if err != nil {
					return
				}
			}
		}
	}
	if s.replicas[0].served != nil {
		s.allTrusted = true
	}
}

func (s *simulation) verifyReplica(text string, r *replica) error {
	key := text + string(r.served.Certificate[0])
	if s.verified[key] == nil {
		authority, err := readBundle([]byte(text)).verify(r.served, s.settings.Names[0], s.now)
		s.verified[key] = &verification{err: err}
		if err == nil {
			s.verified[key].until = authority.NotAfter
		}
	}
	found := s.verified[key]
	if found.err == nil && s.now.After(found.until) {
		return fmt.Errorf("its CA expired at %s, now is %s", found.until, s.now)
	}
	return found.err
}

// settle lets all replicas finish the steps that are due, without further faults.
func (s *simulation) settle() {
	s.chances = chances{}
	for _, r := range s.replicas {
		r.pausedUntil = time.Time{}
	}
	for range 400 {
		for _, r := range s.replicas {
			s.stepReplica(r)
		}
		s.now = s.now.Add(time.Second)
		if s.check(); s.violation != "" {
			return
		}
	}
}

func TestSimulatedReplicasAreAlwaysTrusted(t *testing.T) {
	for name, chances := range map[string]chances{
		"no faults":                         {},
		"replicas are killed":               {crash: 30},
		"replicas pause":                    {pause: 20},
		"both, and resets by a GitOps tool": {crash: 20, pause: 10, reset: 5},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				w := newSimulation(t, seed, faultSet{}, chances)
				w.run(4000)
				if w.violation == "" {
					w.settle()
				}
				if w.violation != "" {
					t.Fatalf("seed %d: %s", seed, w.violation)
				}
				w.checkEnd(t, seed)
			}
		})
	}
}

// checkEnd checks that the replicas reached the final state, and that anything happened at all.
func (s *simulation) checkEnd(t *testing.T, seed uint64) {
	t.Helper()
	if len(s.signers) < 3 {
		t.Errorf("seed %d: %d CAs in total, want at least 3", seed, len(s.signers))
	}
	content := readContent(s.secret.data)
	for _, configuration := range s.configurations {
		if configuration.currentBundle() != string(content.trusted.encode()) {
			t.Errorf("seed %d: the caBundle of the %s configuration differs from the Secret", seed, configuration.name)
		}
	}
	for i, r := range s.replicas {
		switch {
		case r.served == nil:
			t.Errorf("seed %d: replica %d serves nothing", seed, i)
		case !r.served.Leaf.Equal(content.leaf.Leaf):
			t.Errorf("seed %d: replica %d does not serve the certificate in the Secret", seed, i)
		case s.now.After(r.served.Leaf.NotAfter):
			t.Errorf("seed %d: replica %d serves an expired certificate", seed, i)
		}
	}
}

func TestSimulationDetectsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		sabotage faultSet
		chances  chances
	}{
		"a patch without a precondition":          {faultSet{skipVersionCheck: true}, chances{pause: 50, reset: 20}},
		"a certificate before its CA has settled": {faultSet{noTrustDelay: true}, chances{crash: 20}},
		"a CA that is dropped at once":            {faultSet{dropCAsEarly: true}, chances{pause: 30}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				w := newSimulation(t, seed, c.sabotage, c.chances)
				w.run(4000)
				if w.violation != "" {
					t.Logf("seed %d: %s", seed, w.violation)
					return
				}
			}
			t.Error("the fault was not detected")
		})
	}
}
