package mail

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/page/brand"
)

// purpose names the key of stored messages.
const purpose = "queued mail"

// job is the stored arguments of a job: a sealed message (M4).
type job struct {
	Sealed string `json:"sealed"`
}

// Kind returns the type of the job in the database.
func (job) Kind() string { return "mail" }

// stored is a message as it is sealed. Message itself does not marshal its token.
type stored struct {
	Message
	Token string `json:"token,omitempty"`
}

// A Queue adds messages within transactions of type Tx. It is safe for concurrent use.
type Queue[Tx any] struct {
	client *river.Client[Tx]
	box    *seal.Box
	now    func() time.Time
}

// NewQueue returns a queue that adds jobs to the tables of the schema and runs none.
func NewQueue[Tx any](
	driver riverdriver.Driver[Tx], schema string, keys seal.Keys, now func() time.Time,
) (*Queue[Tx], error) {
	box, err := seal.NewBox(keys, purpose)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(driver,
		&river.Config{Schema: schema, PollOnly: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("make the mail queue: %w", err)
	}
	return &Queue[Tx]{client: client, box: box, now: now}, nil
}

// errNotQueued reports a mistake of the caller.
var errNotQueued = errors.New("the message cannot be queued")

// Add adds the job of a message to the transaction (M1).
func (q *Queue[Tx]) Add(ctx context.Context, tx Tx, m Message) error {
	k, ok := kindOf(m.Kind)
	if !ok || m.Address == "" {
		return fmt.Errorf("%w: kind %q", errNotQueued, m.Kind)
	}
	m.ID = uuid.Must(uuid.NewV7())
	if m.Expires.IsZero() {
		m.Expires = q.now().Add(k.life())
	}
	content, err := json.Marshal(stored{m, m.Token.Reveal()})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotQueued, err)
	}
	_, err = q.client.InsertTx(ctx, tx, job{q.box.Seal(content)}, &river.InsertOpts{MaxAttempts: maxAttempts})
	return err
}

// open returns the message of a job.
func open(box *seal.Box, j job) (Message, error) {
	content, err := box.Open(j.Sealed)
	if err != nil {
		return Message{}, err
	}
	var s stored
	if err := json.Unmarshal(content, &s); err != nil {
		return Message{}, err
	}
	s.Message.Token = credential.Secret(s.Token)
	return s.Message, nil
}

const (
	atOnce      = 2                // messages that one process sends at once
	longest     = 40 * time.Second // limit of one try
	abandoned   = 2 * time.Minute  // a job that runs longer has lost its process
	pollEvery   = time.Second
	maxAttempts = 100             // more than fit into the life of a message
	longestRest = 5 * time.Minute // between two tries
	keepSent    = time.Minute     // then the job of a message is deleted (M4)
	stopWithin  = 15 * time.Second
	leaveFor    = 10 * time.Second // a message of an unknown kind is left to other processes
	restFor     = 3 * time.Second  // pause after the queue could not be reached
)

// Outcomes of a message.
const (
	Sent    = "sent"
	Failed  = "failed"  // will be tried again
	Refused = "refused" // the mail server refused the recipient; not tried again
	Expired = "expired" // M3
	Unasked = "unasked" // Prepare decided against it
	Foreign = "foreign" // sealed with a key that is no longer configured
)

// WorkerDeps are the dependencies of a Worker.
type WorkerDeps struct {
	Schema string
	Keys   seal.Keys
	AppURL string
	Brand  brand.Brand
	// Contact is whom mails tell recipients to ask.
	Contact brand.Contact
	Sender  *Sender
	// Prepare completes a message of a kind before it is sent, or returns false if it must not be sent. It may be
	// called several times for one message, and has one effect.
	Prepare map[Kind]func(ctx context.Context, m *Message) (bool, error)
	// Periodic queues the mails that depend on the time. One process calls it every few minutes.
	Periodic func(ctx context.Context) error
	Poll     time.Duration // between two looks for messages; 0: a second
	Count    func(k Kind, outcome string)
	Now      func() time.Time
	Log      *slog.Logger
}

// A Worker sends queued messages. Several processes may run one each.
type Worker[Tx any] struct {
	make func() (*river.Client[Tx], error)
	log  *slog.Logger
}

// NewWorker returns a worker that starts with Run.
func NewWorker[Tx any](driver riverdriver.Driver[Tx], d WorkerDeps) (*Worker[Tx], error) {
	box, err := seal.NewBox(d.Keys, purpose)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	here := site{d.AppURL, d.Brand, d.Contact}
	if err := river.AddWorkerSafely(workers, &sender{WorkerDeps: d, box: box, site: here}); err != nil {
		return nil, fmt.Errorf("make the mail worker: %w", err)
	}
	if err := river.AddWorkerSafely(workers, &periodic{queue: d.Periodic}); err != nil {
		return nil, fmt.Errorf("make the mail worker: %w", err)
	}
	return &Worker[Tx]{log: d.Log, make: func() (*river.Client[Tx], error) {
		return river.NewClient(driver, &river.Config{
			Schema:   d.Schema,
			Workers:  workers,
			Logger:   d.Log,
			PollOnly: true, // LISTEN would hold a connection of the pool
			PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(
				river.PeriodicInterval(periodicEvery),
				func() (river.JobArgs, *river.InsertOpts) {
					return periodicJob{}, &river.InsertOpts{Queue: periodicQueue, MaxAttempts: periodicAttempts}
				},
				&river.PeriodicJobOpts{RunOnStart: true},
			)},
			Queues: map[string]river.QueueConfig{
				river.QueueDefault: {MaxWorkers: atOnce},
				periodicQueue:      {MaxWorkers: 1, FetchPollInterval: cmp.Or(d.Poll, periodicPoll)},
			},
			FetchPollInterval:           cmp.Or(d.Poll, pollEvery),
			JobTimeout:                  longest,
			RescueStuckJobsAfter:        abandoned,
			CompletedJobRetentionPeriod: keepSent,
			CancelledJobRetentionPeriod: keepSent,
			DiscardedJobRetentionPeriod: keepSent,
			ReindexerIndexNames:         []string{}, // the indexes belong to the database owner, who maintains them
		})
	}}, nil
}

// Run sends until ctx ends, then completes the messages in progress.
func (w *Worker[Tx]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		client, err := w.make()
		if err == nil {
			err = client.Start(context.WithoutCancel(ctx))
		}
		if err == nil {
			<-ctx.Done()
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
			defer cancel()
			if err := client.Stop(stopCtx); err != nil {
				w.log.WarnContext(ctx, "process stopped while it sent a mail; another process will send it",
					"cause", err)
			}
			return
		}
		w.log.ErrorContext(ctx, "mails not sent; retrying", "cause", err)
		select {
		case <-ctx.Done():
		case <-time.After(restFor):
		}
	}
}

// A sender is called by River for each job.
type sender struct {
	river.WorkerDefaults[job]
	WorkerDeps
	box  *seal.Box
	site site
}

// NextRetry returns when a failed message is tried again: soon at first, then every few minutes.
func (s *sender) NextRetry(j *river.Job[job]) time.Time {
	rest := time.Second << min(j.Attempt, 16)
	return s.Now().Add(min(rest, longestRest))
}

// Work sends one message. If it returns an error, River logs it and retries later.
func (s *sender) Work(ctx context.Context, j *river.Job[job]) error {
	m, err := open(s.box, j.Args)
	if err != nil {
		s.Count("", Foreign)
		return river.JobCancel(errors.New("the mail cannot be read: was a key removed from ALMONER_KEYS?"))
	}
	if _, known := kindOf(m.Kind); !known && s.Now().Before(m.Expires) { // queued by a process of a later release
		return river.JobSnooze(leaveFor)
	}
	outcome, err := s.send(ctx, m)
	s.Count(m.Kind, outcome)
	switch outcome {
	case Refused, Expired:
		return river.JobCancel(err)
	}
	return err
}

func (s *sender) send(ctx context.Context, m Message) (outcome string, err error) {
	if !s.Now().Before(m.Expires) {
		return Expired, fmt.Errorf("the mail of the kind %s could not be sent in time", m.Kind)
	}
	if prepare := s.Prepare[m.Kind]; prepare != nil {
		wanted, err := prepare(ctx, &m)
		if err != nil {
			return Failed, err
		}
		if !wanted {
			return Unasked, nil
		}
	}
	envelope, err := s.site.render(m)
	if err != nil {
		return Refused, err
	}
	err = s.Sender.Send(ctx, envelope)
	switch {
	case errors.Is(err, ErrRefused):
		return Refused, err
	case err != nil:
		return Failed, err
	}
	return Sent, nil
}

const (
	// periodicQueue is a separate queue, because a process of an earlier release does not know the job.
	periodicQueue    = "periodic"
	periodicPoll     = 3 * time.Second
	periodicEvery    = 10 * time.Minute
	periodicAttempts = 3 // the next job does what a failed one did not
)

// periodicJob makes one process, which River elects, queue the mails that depend on the time.
type periodicJob struct{}

// Kind returns the type of the job in the database.
func (periodicJob) Kind() string { return "periodic" }

// A periodic is called by River for each periodicJob.
type periodic struct {
	river.WorkerDefaults[periodicJob]
	queue func(ctx context.Context) error
}

// Work queues what is due. If it returns an error, River logs it and retries later.
func (p *periodic) Work(ctx context.Context, _ *river.Job[periodicJob]) error { return p.queue(ctx) }
