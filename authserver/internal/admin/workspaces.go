package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/rest"
)

type organisationCommands struct {
	Add  AddOrganisation   `cmd:"" help:"Add an organisation."`
	List ListOrganisations `cmd:"" help:"List the organisations."`
}

type workspaceCommands struct {
	Add  AddWorkspace   `cmd:"" help:"Add a workspace to an organisation."`
	List ListWorkspaces `cmd:"" help:"List the workspaces with their modules and features."`
}

type moduleCommands struct {
	Set SetModule `cmd:"" help:"Enable, disable, provision or unprovision a module of a workspace."`
}

type featureCommands struct {
	Set SetFeature `cmd:"" help:"Turn a feature of a workspace on or off."`
}

type policyCommands struct {
	Show ShowConnectorPolicy `cmd:"" help:"Show the policy of a workspace."`
	Set  SetConnectorPolicy  `cmd:"" help:"Change the given parts of the policy. Stricter limits also apply to existing connections."`
}

// An Organisation has workspaces (spec 1).
type Organisation struct {
	ID      uuid.UUID `json:"id"`
	Name    string    `json:"name"`
	Created rest.Time `json:"createdAt"` // set by the store
}

// A Module is a module of a workspace. It works if it is enabled and provisioned.
type Module struct {
	Name        string `json:"name"`
	Enabled     bool   `json:"enabled"`
	Provisioned bool   `json:"provisioned"`
}

// A Workspace is a workspace of an organisation.
type Workspace struct {
	ID             uuid.UUID `json:"id"`
	OrganisationID uuid.UUID `json:"organisationId"`
	Organisation   string    `json:"organisation"` // the organisation's name
	Name           string    `json:"name"`
	Modules        []Module  `json:"modules"`
	Features       []string  `json:"features"` // the features that are on
	Created        rest.Time `json:"createdAt"`
}

// A ModuleChange is a change of a module; nil fields keep the current value.
type ModuleChange struct{ Enabled, Provisioned *bool }

// WorkspaceStore stores organisations, workspaces and connector policies.
type WorkspaceStore interface {
	AddOrganisation(ctx context.Context, id uuid.UUID, name string, event audit.Event) error
	Organisations(ctx context.Context) ([]Organisation, error)
	AddWorkspace(ctx context.Context, id, organisation uuid.UUID, name string, event audit.Event) error
	// Workspaces lists the workspaces of one organisation, or all.
	Workspaces(ctx context.Context, organisation *uuid.UUID) ([]Workspace, error)
	SetModule(
		ctx context.Context, workspaceID uuid.UUID, module string, change ModuleChange, event audit.Event,
	) (Module, error)
	SetFeature(ctx context.Context, workspaceID uuid.UUID, feature string, on bool, event audit.Event) error
	ConnectorPolicy(ctx context.Context, workspaceID uuid.UUID) (workspace.ConnectorPolicy, error)
}

func (o Organisation) cells() []cell {
	return []cell{{"ID", o.ID}, {"NAME", o.Name}, {"CREATED", o.Created}}
}

func (w Workspace) cells() []cell {
	var modules []string
	for _, m := range w.Modules {
		modules = append(modules, m.words())
	}
	return []cell{
		{"ID", w.ID}, {"ORGANISATION", w.Organisation}, {"NAME", w.Name}, {"CREATED", w.Created},
		{"MODULES", modules}, {"FEATURES", w.Features},
	}
}

func (m Module) words() string {
	words := m.Name
	if !m.Enabled {
		words += " (disabled)"
	}
	if !m.Provisioned {
		words += " (not provisioned)"
	}
	return words
}

func list(texts []string) string {
	if len(texts) == 0 {
		return "-"
	}
	return strings.Join(texts, ", ")
}

// AddOrganisation creates an organisation.
type AddOrganisation struct {
	Name string `arg:"" help:"Name."`
}

func (c AddOrganisation) run(ctx context.Context, s *Service) (Result, error) {
	name, err := parseName(c.Name)
	if err != nil {
		return nil, err
	}
	id := uuid.Must(uuid.NewV7())
	err = s.Store.AddOrganisation(ctx, id, name, event(audit.OrganisationAdded, "organisation", id))
	return Outcome{fmt.Sprintf("Added the organisation %s.", id), map[string]any{"id": id, "name": name}}, err
}

// ListOrganisations lists all organisations.
type ListOrganisations struct{}

func (ListOrganisations) run(ctx context.Context, s *Service) (Result, error) {
	return listed(s.Store.Organisations(ctx))
}

// AddWorkspace creates a workspace of an organisation, with no module enabled.
type AddWorkspace struct {
	Organisation string `required:"" placeholder:"ID" help:"Id of the organisation."`
	Name         string `arg:"" help:"Name."`
}

func (c AddWorkspace) run(ctx context.Context, s *Service) (Result, error) {
	owner, err := parseID("organisation", c.Organisation)
	if err != nil {
		return nil, err
	}
	name, err := parseName(c.Name)
	if err != nil {
		return nil, err
	}
	id := uuid.Must(uuid.NewV7())
	err = s.Store.AddWorkspace(ctx, id, owner, name, workspaceEvent(audit.WorkspaceAdded, id, nil))
	return Outcome{
		fmt.Sprintf("Added the workspace %s.", id),
		map[string]any{"id": id, "organisationId": owner, "name": name},
	}, err
}

// ListWorkspaces lists the workspaces of one organisation, or all.
type ListWorkspaces struct {
	Organisation string `placeholder:"ID" help:"Only the workspaces of one organisation."`
}

func (c ListWorkspaces) run(ctx context.Context, s *Service) (Result, error) {
	owner, err := parseOptional("organisation", c.Organisation)
	if err != nil {
		return nil, err
	}
	return listed(s.Store.Workspaces(ctx, owner))
}

// SetModule applies changes to a module of a workspace, in their order.
type SetModule struct {
	Workspace string   `arg:"" help:"Id of the workspace."`
	Module    string   `arg:"" help:"Name of the module, such as programmes."`
	Changes   []string `arg:"" help:"One or more of enable, disable, provision and unprovision."`
}

func (c SetModule) run(ctx context.Context, s *Service) (Result, error) {
	id, err := parseID("workspace", c.Workspace)
	if err != nil {
		return nil, err
	}
	if modules := perm.Modules(); !slices.Contains(modules, c.Module) {
		return nil, refuse("the module must be " + strings.Join(modules, " or "))
	}
	change, err := parseModuleChange(c.Changes)
	if err != nil {
		return nil, err
	}
	entry := workspaceEvent(audit.ModuleChanged, id, map[string]any{"module": c.Module, "changes": c.Changes})
	after, err := s.Store.SetModule(ctx, id, c.Module, change, entry)
	if err != nil {
		return nil, err
	}
	return Outcome{"Changed the module: " + after.words() + ".", map[string]any{
		"tenantId": id, "module": after.Name, "enabled": after.Enabled, "provisioned": after.Provisioned,
	}}, nil
}

func parseModuleChange(changes []string) (ModuleChange, error) {
	var change ModuleChange
	for _, word := range changes {
		field, value := &change.Enabled, word == "enable" || word == "provision"
		switch word {
		case "enable", "disable":
		case "provision", "unprovision":
			field = &change.Provisioned
		default:
			return ModuleChange{}, refuse("give enable, disable, provision or unprovision")
		}
		if *field != nil && **field != value {
			return ModuleChange{}, refuse("the changes contradict each other")
		}
		*field = &value
	}
	if change == (ModuleChange{}) {
		return ModuleChange{}, refuse("give enable, disable, provision or unprovision")
	}
	return change, nil
}

// SetFeature switches a feature of a workspace on or off.
type SetFeature struct {
	Workspace string `arg:"" help:"Id of the workspace."`
	Feature   string `arg:"" help:"llm_integration."`
	State     string `arg:"" help:"on or off."`
}

func (c SetFeature) run(ctx context.Context, s *Service) (Result, error) {
	id, err := parseID("workspace", c.Workspace)
	switch {
	case err != nil:
		return nil, err
	case c.Feature != "llm_integration":
		return nil, refuse("the feature must be llm_integration")
	case c.State != "on" && c.State != "off":
		return nil, refuse("the state must be on or off")
	}
	entry := workspaceEvent(audit.FeatureChanged, id, map[string]any{"feature": c.Feature, "state": c.State})
	err = s.Store.SetFeature(ctx, id, c.Feature, c.State == "on", entry)
	return Outcome{
		"The feature " + c.Feature + " is now " + c.State + ".",
		map[string]any{"tenantId": id, "feature": c.Feature, "enabled": c.State == "on"},
	}, err
}

// A ConnectorPolicy is the policy of one workspace.
type ConnectorPolicy struct {
	WorkspaceID uuid.UUID            `json:"tenantId"`
	Platforms   []workspace.Platform `json:"platforms"`
	Permissions []string             `json:"permissions"`
	Days        int                  `json:"days"`
}

func policyResult(workspaceID uuid.UUID, p workspace.ConnectorPolicy) ConnectorPolicy {
	return ConnectorPolicy{workspaceID, append([]workspace.Platform{}, p.Platforms...), p.Permissions.Strings(), p.Days}
}

// Text writes the policy as text.
func (c ConnectorPolicy) Text(out io.Writer) error {
	return write(out, fmt.Sprintf("platforms    %s\npermissions  %s\ndays         %d\n",
		list(platformNames(c.Platforms)), list(c.Permissions), c.Days))
}

// ShowConnectorPolicy shows the policy of a workspace.
type ShowConnectorPolicy struct {
	Workspace string `arg:"" help:"Id of the workspace."`
}

func (c ShowConnectorPolicy) run(ctx context.Context, s *Service) (Result, error) {
	id, err := parseID("workspace", c.Workspace)
	if err != nil {
		return nil, err
	}
	found, err := s.Store.ConnectorPolicy(ctx, id)
	return policyResult(id, found), err
}

// SetConnectorPolicy changes the policy of a workspace and narrows existing connections, or shows the effect. Options
// that are not given keep the current value. The word all stands for every value, and for platforms the word none for
// no value.
type SetConnectorPolicy struct {
	Workspace   string   `arg:"" help:"Id of the workspace."`
	Platforms   []string `placeholder:"NAMES" help:"Allowed platforms, separated by commas: claude, chatgpt, other; or all, or none."`
	Permissions []string `placeholder:"NAMES" help:"Permissions that may be granted, separated by commas; or all."`
	Days        *int     `help:"Maximum duration of access in days, 1 to 30."`
	DryRun      bool     `help:"Show the effect on existing connections, and change nothing."`
}

// after returns the policy that the command makes of another.
func (c SetConnectorPolicy) after(before workspace.ConnectorPolicy) (workspace.ConnectorPolicy, error) {
	wish := consent.PolicyRequest{Platforms: c.Platforms, Permissions: c.Permissions, Days: before.Days}
	switch {
	case len(c.Platforms) == 0:
		wish.Platforms = platformNames(before.Platforms)
	case slices.Equal(c.Platforms, []string{"all"}):
		wish.Platforms = platformNames(workspace.Platforms())
	case slices.Equal(c.Platforms, []string{"none"}):
		wish.Platforms = nil
	}
	switch {
	case len(c.Permissions) == 0:
		wish.Permissions = before.Permissions.Strings()
	case slices.Equal(c.Permissions, []string{"all"}):
		wish.Permissions = perm.ForConnectors().Strings()
	}
	if c.Days != nil {
		wish.Days = *c.Days
	}
	out, err := wish.Accept()
	if refused, ok := errors.AsType[*consent.PolicyRefusal](err); ok {
		return workspace.ConnectorPolicy{}, refuse(refused.Field + ": " + refused.Message)
	}
	return out, err
}

func platformNames(platforms []workspace.Platform) []string {
	out := make([]string, len(platforms))
	for i, p := range platforms {
		out[i] = string(p)
	}
	return out
}

func (c SetConnectorPolicy) run(ctx context.Context, s *Service) (Result, error) {
	id, err := parseID("workspace", c.Workspace)
	if err != nil {
		return nil, err
	}
	if len(c.Platforms) == 0 && len(c.Permissions) == 0 && c.Days == nil {
		return nil, refuse("give --platforms, --permissions or --days")
	}
	before, err := s.Store.ConnectorPolicy(ctx, id)
	if err != nil {
		return nil, err
	}
	after, err := c.after(before)
	if err != nil {
		return nil, err
	}
	by := audit.ByOperator().In(id)
	if c.DryRun {
		would, err := s.Rehearsals.Run(ctx, by, rehearsal.SetPolicy(after, nil))
		sentence, others := would.Words(uuid.Nil, strconv.Itoa)
		for _, fact := range others {
			sentence += " " + fact + "."
		}
		return policyOutcome("Dry run, nothing was changed. New policy: ", id, after, sentence, consent.PolicyEffect{
			End:    len(would.With(rehearsal.Ends, false)),
			Lose:   len(would.With(rehearsal.Narrows, false)),
			Sooner: would.Sooner,
		}, false), err
	}
	done, err := s.Connections.SetPolicy(ctx, by, "", after, nil)
	e := done.Effect
	sentence := fmt.Sprintf("Connections: %d ended, %d with fewer permissions, %d shortened.", e.End, e.Lose, e.Sooner)
	return policyOutcome("Changed the policy: ", id, after, sentence, e, true), err
}

// policyOutcome is the outcome of a command that sets a policy. effect says what it does to connections.
func policyOutcome(
	begin string, workspaceID uuid.UUID, p workspace.ConnectorPolicy, effect string, e consent.PolicyEffect,
	changed bool,
) Outcome {
	now := policyResult(workspaceID, p)
	sentence := fmt.Sprintf("%splatforms %s; permissions %s; %s. %s", begin, list(platformNames(now.Platforms)),
		strings.Join(now.Permissions, ", "), plural(p.Days, "day"), effect)
	return Outcome{sentence, map[string]any{
		"tenantId":        workspaceID,
		"platforms":       now.Platforms,
		"permissions":     now.Permissions,
		"days":            now.Days,
		"changed":         changed,
		"ended":           e.End,
		"lostPermissions": e.Lose,
		"endSooner":       e.Sooner,
	}}
}
