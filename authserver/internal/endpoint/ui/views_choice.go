package ui

// Choice is the page on which a user chooses the workspace for an application that belongs to none.
type Choice struct {
	Frame
	Application string
	Domain      string      // domain of the metadata document
	Open        []Workspace // workspaces that the user can choose
	Closed      []Workspace // other workspaces of the user, with connectors switched off
	Asks        []Ask       // for Closed
	Ticket      string
	SwitchTo    string // local path of this request, to sign in as another user
}

// Template implements View.
func (*Choice) Template() string { return "choice" }

// LeadsTo implements View.
func (c *Choice) LeadsTo() string { return c.SwitchTo }
