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

// sabotage are faults in the algorithm. The simulation must detect each.
type sabotage struct {
	unguarded bool // patches do not test the version
	hasty     bool // a certificate is served as soon as its CA is trusted
	forgetful bool // older CAs are dropped at once
}

// chances are the probabilities of events in each step, in 1/1000.
type chances struct{ crash, standStill, reset int }

type world struct {
	t        *testing.T
	rng      *rand.Rand
	now      time.Time
	settings Settings
	sabotage sabotage
	chances  chances

	secret         *simulatedSecret
	configurations []*simulatedConfiguration
	replicas       []*replica

	agreed    bool // set once all replicas were trusted; from then on they always must be
	broken    string
	verified  map[string]*checkedState
	authority map[string]bool // every CA that ever signed
}

type simulatedSecret struct{ data map[string][]byte }

// simulatedConfiguration has the history of its content, because API servers lag behind.
type simulatedConfiguration struct {
	name    string
	version int
	events  []statusEvent
}

type statusEvent struct {
	bundle  string
	until   time.Time // zero for the current content
	foreign bool      // written by another program: no guarantee applies
}

func (c *simulatedConfiguration) eventsText() string { return c.events[len(c.events)-1].bundle }

func (c *simulatedConfiguration) record(now time.Time, bundle string, foreign bool) {
	c.events[len(c.events)-1].until = now
	c.events = append(c.events, statusEvent{bundle: bundle, foreign: foreign})
	c.version++
}

// lag is the maximum lag of an API server: less than TrustDelay.
const lag = 50 * time.Second

// replica is the state of a replica between two steps.
type replica struct {
	served *tls.Certificate
	trust  trust
	asleep time.Time // it pauses until then
	seen   []simulatedView
	read   *simulatedSecret // the Secret as read; nil if there was none
	view   view
	steps  []step
	phase  int
}

type simulatedView struct {
	configuration *simulatedConfiguration
	version       int
	bundle        string
}

func newWorld(t *testing.T, seed uint64, sabotage sabotage, chances chances) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_800_000_000, 0), sabotage: sabotage, chances: chances,
		settings: Settings{Names: ServiceNames("webhook", "system"), CA: 24 * time.Hour, Leaf: 8 * time.Hour, TrustDelay: time.Minute},
		verified: map[string]*checkedState{}, authority: map[string]bool{},
	}
	if sabotage.hasty {
		w.settings.TrustDelay = 0
	}
	for _, name := range []string{"mutating", "validating"} {
		w.configurations = append(w.configurations, &simulatedConfiguration{name: name, events: []statusEvent{{}}})
	}
	for range 3 {
		w.replicas = append(w.replicas, &replica{})
	}
	return w
}

// run simulates a number of steps. It returns early when a guarantee is violated.
func (w *world) run(moments int) {
	for range moments {
		w.pass()
		one := w.replicas[w.rng.IntN(len(w.replicas))]
		switch {
		case w.now.Before(one.asleep):
		case w.happens(w.chances.crash):
			*one = replica{}
		case w.happens(w.chances.standStill):
			one.asleep = w.now.Add(rand64(w.rng, 5*time.Hour))
		case w.happens(w.chances.reset):
			w.configurations[w.rng.IntN(2)].record(w.now, []string{"", "nonsense"}[w.rng.IntN(2)], true)
		default:
			w.moment(one)
		}
		if w.check(); w.broken != "" {
			return
		}
	}
}

func (w *world) happens(chance int) bool { return w.rng.IntN(1000) < chance }

func rand64(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(most)))
}

// pass advances the clock: usually by little, and sometimes by much.
func (w *world) pass() {
	most := 3 * time.Second
	switch chance := w.rng.IntN(100); {
	case chance < 3:
		most = 40 * time.Minute
	case chance < 15:
		most = time.Minute
	}
	w.now = w.now.Add(rand64(w.rng, most))
}

// moment lets a replica perform one read or write.
func (w *world) moment(r *replica) {
	switch {
	case r.phase == 0:
		r.seen, r.phase = nil, 1
		fallthrough
	case r.phase <= len(w.configurations):
		from := w.configurations[r.phase-1]
		r.seen = append(r.seen, simulatedView{from, from.version, from.eventsText()})
		r.phase++
	case r.phase == len(w.configurations)+1:
		w.decide(r)
		r.phase++
	case len(r.steps) == 0:
		r.phase = 0
	default:
		step := r.steps[0]
		r.steps = r.steps[1:]
		w.take(r, step)
	}
}

func (w *world) decide(r *replica) {
	r.read = w.secret
	r.view = view{now: w.now}
	for _, seen := range r.seen {
		r.view.configurations = append(r.view.configurations, configuration{resource: seen.configuration.name, bundles: []string{seen.bundle}})
	}
	if r.read != nil {
		r.view.content = readContent(r.read.data)
		if _, err := r.view.content.trusted.verify(r.view.content.leaf, w.settings.Names[0], w.now); err == nil {
			r.served = r.view.content.leaf
		}
	}
	r.trust = r.trust.observe(w.now, r.view.content, r.view.configurations)
	r.view.trustedSince = r.trust.since
	r.steps = r.view.decide(w.settings)
	if last := &r.steps[len(r.steps)-1]; w.sabotage.forgetful && last.reason == "nothing is due" && len(r.view.content.trusted) > 1 {
		last.do = dropOlder
	}
}

func (w *world) take(r *replica, step step) {
	switch step.do {
	case pause:
	case patchBundle:
		for _, seen := range r.seen {
			if seen.configuration.name == step.configuration.resource && (w.sabotage.unguarded || seen.version == seen.configuration.version) {
				seen.configuration.record(w.now, string(r.view.content.trusted.encode()), false)
			}
		}
	default:
		if r.read != w.secret {
			return // a conflict
		}
		w.write(r, step)
	}
}

func (w *world) write(r *replica, step step) {
	after, err := view{now: w.now, content: r.view.content}.after(step.do, w.settings)
	if err != nil {
		w.t.Fatalf("%s: %v", step.do, err)
	}
	data, err := after.data()
	if err != nil {
		w.t.Fatalf("%s: %v", step.do, err)
	}
	w.secret = &simulatedSecret{data}
	w.authority[string(after.signer.Certificate.Raw)] = true
}

// checkedState is the result of verifying a certificate with a bundle, apart from expiry.
type checkedState struct {
	until time.Time // of the CA that verifies it
	err   error
}

// check checks that each API server, however far behind, trusts each replica with an unexpired certificate.
func (w *world) check() {
	for i, r := range w.replicas {
		if r.served == nil || w.now.After(r.served.Leaf.NotAfter) {
			continue
		}
		for _, configuration := range w.configurations {
			for _, one := range configuration.events {
				if one.foreign || !one.until.IsZero() && w.now.After(one.until.Add(lag)) {
					continue
				}
				if err := w.trusts(one.bundle, r); err != nil && w.agreed {
					w.broken = fmt.Sprintf("replica %d would not be trusted by the %s configuration: %v", i, configuration.name, err)
				} else if err != nil {
					return
				}
			}
		}
	}
	if w.replicas[0].served != nil {
		w.agreed = true
	}
}

func (w *world) trusts(text string, r *replica) error {
	key := text + string(r.served.Certificate[0])
	if w.verified[key] == nil {
		authority, err := readBundle([]byte(text)).verify(r.served, w.settings.Names[0], w.now)
		w.verified[key] = &checkedState{err: err}
		if err == nil {
			w.verified[key].until = authority.NotAfter
		}
	}
	found := w.verified[key]
	if found.err == nil && w.now.After(found.until) {
		return fmt.Errorf("its CA expired at %s, now is %s", found.until, w.now)
	}
	return found.err
}

// settle lets all replicas finish the steps that are due, without further faults.
func (w *world) settle() {
	w.chances = chances{}
	for _, r := range w.replicas {
		r.asleep = time.Time{}
	}
	for range 400 {
		for _, r := range w.replicas {
			w.moment(r)
		}
		w.now = w.now.Add(time.Second)
		if w.check(); w.broken != "" {
			return
		}
	}
}

func TestReplicasThatRaceAndCrashAreTrustedAtEveryMoment(t *testing.T) {
	for name, chances := range map[string]chances{
		"no faults":                         {},
		"replicas are killed":               {crash: 30},
		"replicas pause":                    {standStill: 20},
		"both, and resets by a GitOps tool": {crash: 20, standStill: 10, reset: 5},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				w := newWorld(t, seed, sabotage{}, chances)
				w.run(4000)
				if w.broken == "" {
					w.settle()
				}
				if w.broken != "" {
					t.Fatalf("seed %d: %s", seed, w.broken)
				}
				w.checkEnd(t, seed)
			}
		})
	}
}

// checkEnd checks that the replicas reached the final state, and that anything happened at all.
func (w *world) checkEnd(t *testing.T, seed uint64) {
	t.Helper()
	if len(w.authority) < 3 {
		t.Errorf("seed %d: %d CAs in total, want at least 3", seed, len(w.authority))
	}
	content := readContent(w.secret.data)
	for _, configuration := range w.configurations {
		if configuration.eventsText() != string(content.trusted.encode()) {
			t.Errorf("seed %d: the caBundle of the %s configuration differs from the Secret", seed, configuration.name)
		}
	}
	for i, r := range w.replicas {
		switch {
		case r.served == nil:
			t.Errorf("seed %d: replica %d serves nothing", seed, i)
		case !r.served.Leaf.Equal(content.leaf.Leaf):
			t.Errorf("seed %d: replica %d does not serve the certificate in the Secret", seed, i)
		case w.now.After(r.served.Leaf.NotAfter):
			t.Errorf("seed %d: replica %d serves an expired certificate", seed, i)
		}
	}
}

func TestTheSimulationNoticesWhatIsDoneWrong(t *testing.T) {
	for name, c := range map[string]struct {
		sabotage sabotage
		chances  chances
	}{
		"a patch without a precondition":          {sabotage{unguarded: true}, chances{standStill: 50, reset: 20}},
		"a certificate before its CA has settled": {sabotage{hasty: true}, chances{crash: 20}},
		"a CA that is dropped at once":            {sabotage{forgetful: true}, chances{standStill: 30}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				w := newWorld(t, seed, c.sabotage, c.chances)
				w.run(4000)
				if w.broken != "" {
					t.Logf("seed %d: %s", seed, w.broken)
					return
				}
			}
			t.Error("the fault was not detected")
		})
	}
}
