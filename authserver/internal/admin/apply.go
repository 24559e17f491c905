package admin

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// A ClientChange creates or changes one client.
type ClientChange struct {
	Client     client.Client
	New        bool
	SecretHash []byte // of a new client's first secret; nil for a connector and for a change
	Event      audit.Event
}

// maxClientsFile is the maximum size of a clients file, in bytes.
const maxClientsFile = 1 << 20

// Actions of an AppliedClient.
const (
	actionCreate = "create"
	actionChange = "change"
	actionNone   = "none"
)

// An AppliedClient is what Apply did with one entry or, with dryRun, what it would do.
type AppliedClient struct {
	ID      uuid.UUID `json:"clientId"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Action  string    `json:"action"`            // create, change or none
	Changed []string  `json:"changed,omitempty"` // names of the changed members
	// Secret is the secret of a client that was created. It is shown only once.
	Secret string `json:"clientSecret,omitempty"`
}

// Applied is the result of Apply.
type Applied struct {
	DryRun  bool            `json:"dryRun"`
	Clients []AppliedClient `json:"clients"`
}

// Text writes a line for each client that was created or changed, and a line with the counts.
func (a Applied) Text(out io.Writer) error {
	var text strings.Builder
	count := map[string]int{}
	for _, c := range a.Clients {
		count[c.Action]++
		switch c.Action {
		case actionCreate:
			fmt.Fprintf(&text, "create  %s  %s (%s)\n", c.ID, c.Name, c.Kind)
			if c.Secret != "" {
				fmt.Fprintf(&text, "        client secret, shown only once: %s\n", c.Secret)
			}
		case actionChange:
			fmt.Fprintf(&text, "change  %s  %s (%s): %s\n", c.ID, c.Name, c.Kind, strings.Join(c.Changed, ", "))
		}
	}
	fmt.Fprintf(&text, "%d created, %d changed, %d unchanged\n", count[actionCreate], count[actionChange],
		count[actionNone])
	if a.DryRun {
		text.WriteString("Dry run: nothing was changed.\n")
	}
	return write(out, text.String())
}

// Apply creates the clients of a clients file that do not exist and changes those that differ from it, in one
// transaction, or shows what it would do. It does not change clients that are not in the file, or grants. Its error is
// a *Refusal if the file is not valid.
type Apply struct {
	File   string    `short:"f" required:"" placeholder:"FILE" help:"File with the clients in YAML; - for standard input."`
	DryRun bool      `help:"Change nothing; show what would change."`
	From   io.Reader `kong:"-"` // the file, opened by Check
}

// Check implements Checked.
func (c *Apply) Check() error {
	c.From = os.Stdin
	if c.File == "-" {
		return nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return fmt.Errorf("open the clients file: %w", err)
	}
	c.From = file
	return nil
}

func (c Apply) run(ctx context.Context, s *Service) (Result, error) {
	specs, err := readClientsFile(c.From)
	if err != nil {
		return nil, err
	}
	var clients []client.Client
	seen := map[uuid.UUID]bool{}
	for i, spec := range specs {
		one, err := spec.client(s.Resources)
		if err == nil && seen[one.ID] {
			err = refuse("its id is also the id of an earlier entry")
		}
		if err != nil {
			return nil, inEntry(i, spec.Name, err)
		}
		seen[one.ID] = true
		clients = append(clients, one)
	}
	return s.applyClients(ctx, clients, c.DryRun)
}

// inEntry adds the position of an entry in a clients file to its refusal.
func inEntry(i int, name string, err error) error {
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok {
		return err
	}
	return refuse(fmt.Sprintf("clients[%d] (%q): %s", i, name, refusal.Message))
}

func readClientsFile(file io.Reader) ([]ClientSpec, error) {
	text, err := io.ReadAll(io.LimitReader(file, maxClientsFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the clients file: %w", err)
	}
	if len(text) > maxClientsFile {
		return nil, refuse("the clients file is larger than 1 MiB")
	}
	var content struct {
		Clients []ClientSpec `yaml:"clients"`
		Forms   any          `yaml:"forms"` // for resourceapi apply
	}
	// Strict refuses unknown members. The decoder refuses duplicate ones.
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := decoder.Decode(&content); err != nil && !errors.Is(err, io.EOF) {
		first, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return nil, refuse("the clients file is not valid: " + first)
	}
	if len(content.Clients) == 0 && content.Forms == nil {
		return nil, refuse("the clients file has no clients: it must contain a list named clients")
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, refuse("the clients file must be one YAML document")
	}
	return content.Clients, nil
}

func (s *Service) applyClients(ctx context.Context, clients []client.Client, dryRun bool) (Applied, error) {
	applied := Applied{DryRun: dryRun, Clients: []AppliedClient{}}
	var pending []ClientChange
	for i, c := range clients {
		change, changed, err := s.change(ctx, c)
		if err != nil {
			return Applied{}, inEntry(i, c.Name, err)
		}
		one := AppliedClient{
			ID:      c.ID,
			Kind:    string(c.Kind),
			Name:    c.Name,
			Action:  actionNone,
			Changed: changed,
		}
		if change.New {
			one.Action = actionCreate
		} else if len(changed) > 0 {
			one.Action = actionChange
		}
		if change.New && !dryRun {
			secret, hash, err := client.NewSecret(c.Kind, rand.Reader)
			if err != nil {
				return Applied{}, err
			}
			one.Secret, change.SecretHash = secret.Reveal(), hash
		}
		if one.Action != actionNone {
			pending = append(pending, change)
		}
		applied.Clients = append(applied.Clients, one)
	}
	if dryRun || len(pending) == 0 {
		return applied, nil
	}
	return applied, s.Store.ChangeClients(ctx, pending)
}

// change compares a client with the stored one.
func (s *Service) change(ctx context.Context, c client.Client) (ClientChange, []string, error) {
	old, err := s.Store.Client(ctx, c.ID)
	if errors.Is(err, client.ErrUnknown) {
		c.CreatedAt = time.Now().UTC()
		return ClientChange{Client: c, New: true, Event: clientEvent(audit.ClientRegistered, c)}, nil, nil
	}
	if err != nil {
		return ClientChange{}, nil, err
	}
	changed, err := changes(old, c)
	change := ClientChange{Client: c, Event: clientEvent(audit.ClientChanged, c)}
	change.Event.Detail = map[string]any{"changed": changed}
	return change, changed, err
}

func clientEvent(action audit.Action, c client.Client) audit.Event {
	e := event(action, "client", c.ID)
	if c.WorkspaceID != uuid.Nil {
		e.WorkspaceID = &c.WorkspaceID
	}
	return e
}
