"""The reinforcement-learning environments ("worlds"): corridor, mazes and water maze, as arrays of thousands of copies.

world.py        what a world is, and the random numbers of its copies
corridor.py     the colour is shown once, the doors come at the end
grid.py         moving, seeing and shortest paths in a grid: what the mazes share
maze.py         maze navigation, with turns or (easy) with four moves
water_maze.py   no walls, named cells, a goal to be found again and again
play.py         plays episodes with a policy, the oracle or chance: the score
picture.py      a scene as pixels or as text
gym.py          Gymnasium's Env and VectorEnv, registered; the only file that needs gymnasium
"""
