package torture

import (
	"pgregory.net/rapid"
)

// These steps change the state by administration and time, not through the product.

func (m *model) opensWorkspace(*rapid.T) {
	if len(m.workspaces) == 4 {
		return
	}
	m.workspaces = append(m.workspaces, &workspace{
		Workspace:   m.p.Database.Workspace(m.t),
		llm:         true,
		enabled:     true,
		provisioned: true,
		members:     map[*user][]string{},
		programmes:  map[string]string{},
	})
}

func (m *model) hasUser(*rapid.T) {
	if len(m.users) == 4 {
		return
	}
	someone := m.p.Database.User(m.t)
	m.users = append(m.users, &user{User: someone, browser: m.p.Person(m.t, someone)})
}

func (m *model) join(w *workspace, u *user, permissions []string) {
	m.p.Database.Join(m.t, w.Workspace, u.User, permissions...)
	w.members[u] = permissions
}

func (m *model) joins(rt *rapid.T) {
	w, u := one(rt, "workspace", m.workspaces), one(rt, "user", m.users)
	if _, member := w.members[u]; !member {
		m.join(w, u, some(rt, "permissions", choices(), 0))
	}
}

func (m *model) leaves(rt *rapid.T) {
	w, u := one(rt, "workspace", m.workspaces), one(rt, "user", m.users)
	if _, member := w.members[u]; member {
		m.p.Database.Leave(m.t, w.Workspace, u.User)
		delete(w.members, u)
	}
}

func (m *model) permits(rt *rapid.T) {
	w, u := one(rt, "workspace", m.workspaces), one(rt, "user", m.users)
	permissions := some(rt, "permissions", choices(), 0)
	if _, member := w.members[u]; member {
		m.p.Database.Permit(m.t, w.Workspace, u.User, permissions...)
		w.members[u] = permissions
	}
}

func (m *model) switchesLLM(rt *rapid.T) {
	w := one(rt, "workspace", m.workspaces)
	w.llm = !w.llm
	m.p.Database.SetLLM(m.t, w.Workspace, w.llm)
}

func (m *model) switchesModule(rt *rapid.T) {
	w := one(rt, "workspace", m.workspaces)
	if rapid.Bool().Draw(rt, "enabled") {
		w.enabled = !w.enabled
	} else {
		w.provisioned = !w.provisioned
	}
	m.p.Database.SetModule(m.t, w.Workspace, w.enabled, w.provisioned)
}

func (m *model) token(w *workspace, u *user, permissions []string) {
	text := m.p.Database.Token(m.t, w.Workspace, u.User, permissions...)
	m.credentials = append(m.credentials, &bearer{text: text, owner: u, home: w, permissions: permissions})
}

func (m *model) makesToken(rt *rapid.T) {
	m.token(one(rt, "workspace", m.workspaces), one(rt, "user", m.users), some(rt, "permissions", choices(), 1))
}

func (m *model) endsToken(rt *rapid.T) {
	b := one(rt, "credential", m.credentials)
	end := one(rt, "by",
		[]func(){func() { m.p.Database.RevokeToken(m.t, b.text) }, func() { m.p.Database.ExpireToken(m.t, b.text) }})
	if b.grant == nil {
		end()
		b.dead = true
	}
}

func (m *model) endsGrant(rt *rapid.T) {
	c := one(rt, "grant", m.grants)
	m.p.Database.EndGrantIn(m.t, c.id, -1e9)
	c.over = true
}
