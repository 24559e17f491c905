package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/rest"
)

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

// Workspaces stores organisations and workspaces.
type Workspaces interface {
	AddOrganisation(ctx context.Context, id uuid.UUID, name string, event audit.Event) error
	Organisations(ctx context.Context) ([]Organisation, error)
	AddWorkspace(ctx context.Context, id, organisation uuid.UUID, name string, event audit.Event) error
	// Workspaces lists the workspaces of one organisation, or all.
	Workspaces(ctx context.Context, organisation *uuid.UUID) ([]Workspace, error)
	SetModule(
		ctx context.Context, workspaceID uuid.UUID, module string, change ModuleChange, event audit.Event,
	) (Module, error)
	SetFeature(ctx context.Context, workspaceID uuid.UUID, feature string, on bool, event audit.Event) error
}

func (Organisation) columns() []string { return []string{"ID", "NAME", "CREATED"} }
func (o Organisation) cells() []string {
	return []string{o.ID.String(), o.Name, created(o.Created)}
}

func (Workspace) columns() []string {
	return []string{"ID", "ORGANISATION", "NAME", "CREATED", "MODULES", "FEATURES"}
}

func (w Workspace) cells() []string {
	modules := make([]string, len(w.Modules))
	for i, m := range w.Modules {
		modules[i] = m.words()
	}
	return []string{w.ID.String(), w.Organisation, w.Name, created(w.Created), list(modules), list(w.Features)}
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
func (s *Service) AddOrganisation(ctx context.Context, name string) (Result, error) {
	name, err := parseName(name)
	if err != nil {
		return nil, err
	}
	id := identity.New()
	if err := s.Store.AddOrganisation(ctx, id, name, event(audit.OrganisationAdded, "organisation", id)); err != nil {
		return nil, err
	}
	return Outcome{fmt.Sprintf("Added the organisation %s.", id), map[string]any{"id": id, "name": name}}, nil
}

// Organisations lists all organisations.
func (s *Service) Organisations(ctx context.Context) (Result, error) {
	found, err := s.Store.Organisations(ctx)
	return List[Organisation](found), err
}

// AddWorkspace creates a workspace of an organisation, with no module enabled.
func (s *Service) AddWorkspace(ctx context.Context, organisation, name string) (Result, error) {
	owner, err := parseID("organisation", organisation)
	if err != nil {
		return nil, err
	}
	if name, err = parseName(name); err != nil {
		return nil, err
	}
	id := identity.New()
	if err := s.Store.AddWorkspace(ctx, id, owner, name, workspaceEvent(audit.WorkspaceAdded, id, nil)); err != nil {
		return nil, err
	}
	return Outcome{
		fmt.Sprintf("Added the workspace %s.", id),
		map[string]any{"id": id, "organisationId": owner, "name": name},
	}, nil
}

// Workspaces lists the workspaces of one organisation, or all if organisation is "".
func (s *Service) Workspaces(ctx context.Context, organisation string) (Result, error) {
	owner, err := parseOptional("organisation", organisation)
	if err != nil {
		return nil, err
	}
	found, err := s.Store.Workspaces(ctx, owner)
	return List[Workspace](found), err
}

// SetModule applies changes to a module of a workspace, in their order: enable, disable, provision, unprovision.
func (s *Service) SetModule(ctx context.Context, workspace, module string, changes []string) (Result, error) {
	id, err := parseID("workspace", workspace)
	if err != nil {
		return nil, err
	}
	if modules := perm.Modules(); !slices.Contains(modules, module) {
		return nil, refuse("the module must be " + strings.Join(modules, " or "))
	}
	change, err := parseModuleChange(changes)
	if err != nil {
		return nil, err
	}
	entry := workspaceEvent(audit.ModuleChanged, id, map[string]any{"module": module, "changes": changes})
	after, err := s.Store.SetModule(ctx, id, module, change, entry)
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
func (s *Service) SetFeature(ctx context.Context, workspace, feature, state string) (Result, error) {
	id, err := parseID("workspace", workspace)
	if err != nil {
		return nil, err
	}
	if feature != "llm_integration" {
		return nil, refuse("the feature must be llm_integration")
	}
	if state != "on" && state != "off" {
		return nil, refuse("the state must be on or off")
	}
	entry := workspaceEvent(audit.FeatureChanged, id, map[string]any{"feature": feature, "state": state})
	if err := s.Store.SetFeature(ctx, id, feature, state == "on", entry); err != nil {
		return nil, err
	}
	return Outcome{"The feature " + feature + " is now " + state + ".", map[string]any{
		"tenantId": id, "feature": feature, "enabled": state == "on",
	}}, nil
}
