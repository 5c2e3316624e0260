"""Worlds to act in: the paper's corridor, mazes and water maze, as arrays of thousands of copies.

world.py        what a world is, and the random numbers of its copies
corridor.py     the colour is shown once, the door comes at the end
grid.py         moving, looking and finding the way in a grid: what the mazes share
maze.py         maze navigation, with turns or (easy) with four moves
water_maze.py   no walls, cells with names, a goal to be found again and again
play.py         a policy, or the oracle, plays episodes: the score
picture.py      a scene as pixels or as text
gym.py          Gymnasium's Env and VectorEnv over these, registered; the only file that needs gymnasium
"""
